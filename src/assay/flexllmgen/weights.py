"""An OPT model's weights in FlexLLMGen's format: a folder with one NumPy file a tensor."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import OutputError, SpecificationError

_LAST = "decoder.embed_positions.weight"
"""The file by which FlexLLMGen sees that the folder exists."""


@dataclass(frozen=True)
class OptWeights:
    """Where FlexLLMGen finds a model's weights, and what they are."""

    name: str
    """FlexLLMGen's name of the model: the folder is ``<name>-np``."""
    folder: Path
    """The folder that holds that folder."""
    digest: str
    """A hash of the files' names, sizes and contents."""


def optconfig_values(config: Any, source: str) -> dict[str, Any]:
    """The arguments of FlexLLMGen's ``OptConfig``, from the configuration of ``transformers``.

    Raises:
        SpecificationError: FlexLLMGen cannot run a model of this kind.
    """
    if config.model_type != "opt":
        raise SpecificationError(f"FlexLLMGen runs OPT models; {source!r} is of type {config.model_type!r}")
    expected = {
        "word_embed_proj_dim": config.hidden_size,
        "ffn_dim": 4 * config.hidden_size,
        "do_layer_norm_before": True,
        "activation_function": "relu",
        "enable_bias": True,
        "layer_norm_elementwise_affine": True,
    }
    for name, value in expected.items():
        if getattr(config, name, value) != value:
            raise SpecificationError(
                f"FlexLLMGen cannot run {source!r}: its {name} is {getattr(config, name)!r}, and FlexLLMGen's OPT has "
                f"{value!r}"
            )
    return {
        "num_hidden_layers": config.num_hidden_layers,
        "max_seq_len": config.max_position_embeddings,
        "hidden_size": config.hidden_size,
        "input_dim": config.hidden_size,
        "n_head": config.num_attention_heads,
        "ffn_embed_dim": config.ffn_dim,
        "vocab_size": config.vocab_size,
        "pad_token_id": config.pad_token_id,
    }


def write_weights(source: str, folder: str, transformers: Any, torch: Any) -> OptWeights:
    """The model's weights in FlexLLMGen's format, written unless they are there.

    Args:
        source: the model's directory, or its name on the hub.
        folder: FlexLLMGen's ``path``.
        transformers: the package.
        torch: PyTorch.

    Raises:
        SpecificationError: the model cannot be loaded.
        OutputError: the weights cannot be written.
    """
    home = Path(folder).expanduser()
    is_local = Path(source).is_dir()
    name = f"{Path(source).resolve().name}-{_digest(Path(source))[:12]}" if is_local else source.split("/")[-1].lower()
    weights = home / f"{name}-np"
    if not (weights / _LAST).is_file():
        _convert(source, weights, transformers, torch)
    return OptWeights(name=name, folder=home, digest=_digest(weights))


def _convert(source: str, weights: Path, transformers: Any, torch: Any) -> None:
    """Write all files beside their place and rename the folder, so that a half-written one is never used."""
    try:
        model = transformers.OPTForCausalLM.from_pretrained(source, dtype=torch.float16)
    except Exception as error:  # transformers raises anything for a damaged file
        reason = " ".join(str(error).split())[:300]
        raise SpecificationError(f"the model {source!r} cannot be loaded: {reason}") from None
    try:
        weights.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(prefix=f".{weights.name}-", dir=weights.parent))
        try:
            _write_tensors(model.state_dict(), written)
            with contextlib.suppress(FileExistsError):
                shutil.rmtree(weights, ignore_errors=True)
                os.rename(written, weights)
        finally:
            shutil.rmtree(written, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"FlexLLMGen's weights cannot be written to {weights}: {error.strerror or error}") from None


def _write_tensors(state: dict[str, Any], folder: Path) -> None:
    import numpy as np

    for name, tensor in state.items():
        short = name.removeprefix("model.").replace("decoder.final_layer_norm", "decoder.layer_norm")
        with (folder / short).open("wb") as file:  # np.save would append ".npy" to a name
            np.save(file, tensor.detach().cpu().numpy())


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.iterdir() if path.is_file()):
        digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()
