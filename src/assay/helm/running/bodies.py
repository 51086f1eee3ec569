"""Writes HELM's requests as bodies for an OpenAI-compatible server, as HELM's clients for vLLM do.

Keys without effect (an empty list of stop sequences, ``best_of`` of one) are left out, since some servers refuse them.
To score prompts, the body asks for log-probabilities in the way that the server supports.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from assay.client.native_endpoints import sglang_body
from assay.errors import UnsupportedTaskError
from assay.types import EndpointKind, LogprobSource

if TYPE_CHECKING:
    from assay.helm.adaptation import Request


def is_scoring(request: Request) -> bool:
    """Whether the request only scores the prompt's tokens and generates nothing."""
    return request.echo_prompt and request.max_tokens == 0


def check_supported(request: Request, endpoint: EndpointKind) -> None:
    """Refuse a request that cannot be answered correctly.

    Raises:
        UnsupportedTaskError: says what the request asks for.
    """
    _validate(request)
    if request.embedding:
        raise UnsupportedTaskError("the run asks for embeddings, which are not supported")
    if request.multimodal_prompt is not None or request.image_generation_parameters is not None:
        raise UnsupportedTaskError("the run needs images or sound, which are not supported")
    if request.echo_prompt and request.max_tokens:
        raise UnsupportedTaskError("the run asks for echoed prompts with an answer after them, which is not supported")
    if request.echo_prompt and request.num_completions > 1:
        raise UnsupportedTaskError("the run asks for several completions of a prompt that is only scored")
    if endpoint == "chat" and request.echo_prompt:
        raise UnsupportedTaskError(
            "the run scores prompts by their log-probabilities (multiple_choice_separate, language_modeling), which "
            "chat completions cannot give; ask the completions endpoint (--completions)"
        )
    if endpoint == "completions" and request.messages is not None:
        raise UnsupportedTaskError("the run's prompts are conversations; ask the chat endpoint (--chat)")


def _validate(request: Request) -> None:
    for name, lowest in (("max_tokens", 0), ("num_completions", 1), ("temperature", 0)):
        value = getattr(request, name)
        if not lowest <= value < math.inf:
            raise UnsupportedTaskError(f"the run asks for answers with {name}={value}, which is impossible")


def body_of(request: Request, model: str, endpoint: EndpointKind, source: LogprobSource | None) -> bytes:
    """The body for a request of HELM's.

    Args:
        request: a request that :func:`check_supported` accepts.
        model: the name that the server serves the model under.
        endpoint: the endpoint that gets the body.
        source: how the server returns a prompt's log-probabilities, if that is needed.
    """
    if is_scoring(request):
        return _scoring(request.prompt, model, source or LogprobSource.ECHO)
    body = _chat(request, model) if endpoint == "chat" else _completions(request, model)
    return json.dumps(body).encode("ascii")


def _scoring(prompt: str, model: str, source: LogprobSource) -> bytes:
    """The body that asks for a prompt's own log-probabilities.

    It asks for one generated token, which is ignored, since not all servers accept zero.
    """
    if source is LogprobSource.SGLANG:
        return sglang_body(json.dumps(prompt))
    way = {"logprobs": 1, "echo": True} if source is LogprobSource.ECHO else {"prompt_logprobs": 1}
    return json.dumps({"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 1, **way}).encode("ascii")


def _completions(request: Request, model: str) -> dict[str, Any]:
    candidates = max(request.top_k_per_token, request.num_completions)
    # With greedy decoding all candidates are the same, and vLLM refuses best_of.
    best_of = 1 if request.temperature == 0 else candidates
    return {
        "model": model,
        "prompt": request.prompt,
        "temperature": request.temperature,
        "n": request.num_completions,
        "max_tokens": request.max_tokens,
        **({"best_of": best_of} if best_of > 1 else {}),
        "logprobs": candidates,
        **_stop(request),
        "top_p": request.top_p,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        "echo": False,
    }


def _chat(request: Request, model: str) -> dict[str, Any]:
    messages = request.messages if request.messages is not None else [{"role": "user", "content": request.prompt}]
    return {
        "model": model,
        "messages": messages,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "n": request.num_completions,
        **_stop(request),
        "max_tokens": request.max_tokens,
        "presence_penalty": request.presence_penalty,
        "frequency_penalty": request.frequency_penalty,
        **_response_format(request),
    }


def _stop(request: Request) -> dict[str, Any]:
    return {"stop": request.stop_sequences} if request.stop_sequences else {}


def _response_format(request: Request) -> dict[str, Any]:
    schema = (request.response_format or {}).get("json_schema")
    if not schema:
        return {}
    whole = {"additionalProperties": False, "required": list(schema.get("properties", {})), **schema}
    description = {"name": "response", "description": "", "schema": whole, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": description}}
