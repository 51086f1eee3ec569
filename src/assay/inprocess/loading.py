"""Loads a causal model and its tokenizer, and refuses in one line what cannot be loaded or would answer nonsense."""

from __future__ import annotations

import hashlib
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._util.versions import installed_version
from assay.errors import MissingDependencyError, SpecificationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.types import LocalOptions

INSTALL = "pip install torch==2.13.0 'assay[hf]'"
_PACKAGES = ("torch", "transformers", "tokenizers")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth")
_SHA256 = re.compile("[0-9a-f]{64}")


def library(name: str) -> Any:
    """Import a library.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingDependencyError(f"a model in this process needs the package {name}: {INSTALL}") from None


def load_model(path: str, options: LocalOptions) -> Any:
    """A causal model of transformers, ready to answer.

    Raises:
        MissingDependencyError: PyTorch or transformers is not installed.
        SpecificationError: there is no such model or device, it is of another kind, or its weights are not finite.
    """
    torch, transformers = library("torch"), library("transformers")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    device = _device(torch, options.device)
    _refuse_missing_folder(path)
    origin = {"revision": options.revision or "main", "trust_remote_code": options.trust_remote_code}
    try:
        config = transformers.AutoConfig.from_pretrained(path, **origin)
    except Exception as error:  # transformers raises anything for a damaged file
        raise _unloadable(path, error) from None
    _refuse_other_kinds(path, config, transformers)
    attention = {} if options.attn is None else {"attn_implementation": options.attn}
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=options.dtype, **attention, **origin)
        model = model.to(device).eval()
    except Exception as error:
        raise _unloadable(path, error) from None
    _refuse_infinite_weights(path, model, torch)
    return model


def _device(torch: Any, name: str | None) -> Any:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SpecificationError(f"device is {name!r}; write cpu, cuda, cuda:0, … as PyTorch names them") from None
    try:
        torch.empty(1, device=device)
    except Exception as error:  # each backend raises its own
        raise SpecificationError(f"the device {name!r} cannot be used: {_first_line(error)}") from None
    return device


def _refuse_missing_folder(path: str) -> None:
    folder = Path(path).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise SpecificationError(f"the folder '{path}' has no config.json: it holds no model of transformers")
        if not any(next(folder.glob(pattern), None) for pattern in _WEIGHTS):
            raise SpecificationError(f"the folder '{path}' has no weights (model.safetensors)")
    elif path.startswith((".", "/", "~")) or path.count("/") > 1:
        raise SpecificationError(f"there is no folder '{path}' to load a model from")


def _refuse_other_kinds(path: str, config: Any, transformers: Any) -> None:
    kind = config.model_type
    if config.is_encoder_decoder:
        raise SpecificationError(f"the model '{path}' is an encoder-decoder ({kind}); hf: takes causal models only")
    has_own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING and not has_own_code:
        raise SpecificationError(
            f"the model '{path}' is of the kind {kind}, which is no causal model of text; hf: takes causal models only"
        )


def _refuse_infinite_weights(path: str, model: Any, torch: Any) -> None:
    for name, weights in model.named_parameters():
        if weights.is_floating_point() and not torch.isfinite(weights).all():
            raise SpecificationError(f"the weights of '{path}' are not finite: {name} has NaN or infinity in it")


def _unloadable(path: str, error: Exception) -> SpecificationError:
    return SpecificationError(f"the model '{path}' cannot be loaded: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:300]


def identity_of(path: str, model: Any) -> dict[str, str]:
    """What can change a model's answers: its weights' hash, their precision, the device's kind, versions."""
    versions = {name: installed_version(name) or "none" for name in _PACKAGES}
    return {
        "weights": weights_hash(path, model.config),
        "dtype": str(model.dtype).removeprefix("torch."),
        "device": model.device.type,
        "attention": str(getattr(model.config, "_attn_implementation", None)),
        **versions,
    }


def weights_hash(path: str, config: Any) -> str:
    """SHA-256 of all files of a model's folder, each with its name; of a model on the hub, its commit."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return str(getattr(config, "_commit_hash", None))
    digest = hashlib.sha256()
    for file in _files(folder):
        digest.update(f"{file.name}\0{_file_hash(file)}\0".encode())
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    kept = {".safetensors", ".bin", ".pt", ".pth", ".json", ".jinja", ".model", ".txt", ".py"}
    yield from (file for file in sorted(folder.iterdir()) if file.suffix in kept and file.is_file())


def _file_hash(file: Path) -> str:
    blob = file.resolve().name
    if _SHA256.fullmatch(blob):  # the hub's cache names files by it
        return blob
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
