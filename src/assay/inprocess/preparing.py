"""A model in this process as a specification: how the user names it, and what is known of it once it is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from assay.client.preflight import Preflight
from assay.client.server_info import ServedModel, ServerInfo
from assay.errors import SpecificationError
from assay.types import LOCAL_PREFIX, LocalOptions, ModelSpec, Precision

if TYPE_CHECKING:
    from assay.inprocess.engine import Engine


def is_local(name: str) -> bool:
    """Whether a model's name says that it answers in this process."""
    return name.startswith(LOCAL_PREFIX)


def LocalModel(  # noqa: N802 - stands beside ModelSpec, which it makes
    name: str,
    *,
    dtype: Precision = "auto",
    device: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    attn: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    max_length: int | None = None,
    seed: int = 1234,
) -> ModelSpec:
    """A model that answers in this process.

    Args:
        name: ``hf:`` and a folder, or a repository on the hub; any name for an engine that is given to
            :func:`assay.evaluate`.
        dtype: ``auto`` for the precision of the stored weights, or ``float32``, ``bfloat16``, ``float16``.
        device: PyTorch's; by default a GPU if there is one.
        batch_size: requests at once; ``auto`` cuts batches by their tokens.
        attn: transformers' attention implementation, such as ``sdpa`` or ``eager``.
        revision: branch, tag or commit of a model on the hub.
        trust_remote_code: run code that lies beside the model.
        max_length: the context length in tokens; by default the model's.
        seed: for sampling.
    """
    options = LocalOptions(
        dtype=dtype,
        device=device,
        batch_size=batch_size,
        attn=attn,
        revision=revision,
        trust_remote_code=trust_remote_code,
    )
    return ModelSpec(
        base_url=name,
        model=name.removeprefix(LOCAL_PREFIX),
        endpoint="completions",
        local=options,
        max_length=max_length,
        seed=seed,
    )


def load_engine(model: ModelSpec) -> Engine:
    """The engine that a specification names.

    Raises:
        SpecificationError: there is none of that name, or it cannot be loaded.
        MissingDependencyError: its library is not installed.
    """
    if not is_local(model.base_url):
        raise SpecificationError(f"the model '{model.base_url}' names no engine; write hf:FOLDER, or pass an engine")
    from assay.inprocess.huggingface import HuggingFaceEngine

    return HuggingFaceEngine(model)


def with_engine(model: ModelSpec, engine: Engine) -> ModelSpec:
    """The specification with the loaded model's context length and identity, which belong to its answers."""
    local = msgspec.structs.replace(model.local or LocalOptions(), identity=dict(engine.identity))
    return msgspec.structs.replace(model, local=local, max_length=engine.max_length)


def local_preflight(model: ModelSpec, engine: Engine) -> Preflight:
    """What a server would have said of itself."""
    served = ServedModel(id=model.model, max_model_len=engine.max_length, owned_by="assay")
    return Preflight(servers={model.base_url: ServerInfo(url=model.base_url, models=(served,))})
