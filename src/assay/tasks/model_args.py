"""How lm-eval would name and configure the model: what it writes into results and task metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.client.urls import endpoint_url, without_secrets
from assay.tasks.tokenizer import backend_of
from assay.types import USUAL_MAX_GEN_TOKS

if TYPE_CHECKING:
    from assay.types import LocalOptions, ModelSpec

_DEFAULT_TIMEOUT = 7200.0


def lm_eval_model_name(model: ModelSpec) -> str:
    """The value of lm-eval's ``--model`` that asks this endpoint."""
    if model.local is not None:
        return "hf"
    return "local-chat-completions" if model.endpoint == "chat" else "local-completions"


def model_args(model: ModelSpec, url: str | None = None) -> dict[str, Any]:
    """The value of lm-eval's ``--model_args`` that asks this endpoint in the same way.

    Args:
        model: names the endpoint.
        url: where it is; by default, where its base URL is most likely to mean.
    """
    if model.local is not None:
        return _local_arguments(model, model.local)
    arguments: dict[str, Any] = {
        "model": model.model,
        "base_url": without_secrets(endpoint_url(model.base_url, model.endpoint)) if url is None else url,
        "num_concurrent": model.concurrency,
        **_tokenization(model),
    }
    if model.request_timeout != _DEFAULT_TIMEOUT:
        arguments["timeout"] = int(model.request_timeout)
    if model.max_length is not None:
        arguments["max_length"] = model.max_length
    if model.max_gen_toks != USUAL_MAX_GEN_TOKS:
        arguments["max_gen_toks"] = model.max_gen_toks
    if model.think_end_token is not None:
        arguments["think_end_token"] = model.think_end_token
    if model.eos_string is not None:
        arguments["eos_string"] = model.eos_string
    return arguments


def _local_arguments(model: ModelSpec, local: LocalOptions) -> dict[str, Any]:
    arguments: dict[str, Any] = {"pretrained": model.model, "dtype": local.dtype}
    given = {
        "device": local.device,
        "revision": local.revision,
        "trust_remote_code": local.trust_remote_code or None,
        "attn_implementation": local.attn,
        "tokenizer": model.tokenizer,
        "add_bos_token": model.add_bos_token or None,
        "max_length": model.max_length,
        "think_end_token": model.think_end_token,
    }
    return arguments | {name: value for name, value in given.items() if value is not None}


def _tokenization(model: ModelSpec) -> dict[str, Any]:
    if model.tokenizer is None:
        return {"tokenized_requests": False, "tokenizer_backend": None}
    backend = backend_of(model)
    settings: dict[str, Any] = {"tokenizer_backend": backend}
    if backend == "huggingface":
        settings["tokenizer"] = model.tokenizer
    if model.tokenizer_revision is not None:
        settings["revision"] = model.tokenizer_revision
    if model.add_bos_token:
        settings["add_bos_token"] = True
    if model.custom_prefix_token_id is not None:
        settings["custom_prefix_token_id"] = model.custom_prefix_token_id
    return settings if model.tokenized_requests else {"tokenized_requests": False, **settings}
