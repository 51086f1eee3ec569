"""Requests' times and tokens, and the energy and carbon of a model's training as far as HELM knows them."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.helm.adaptation import Request, RequestState
    from assay.helm.metrics.table import Named
    from assay.helm.tokenization import TokenCounter


def efficiency(state: RequestState, tokens: TokenCounter | None, predates_deployments: bool) -> Named:
    """The statistics of one answered request, in HELM's order.

    Args:
        state: The request with its result.
        tokens: Counts the prompt's tokens; without it, statistics that depend on them are left out.
        predates_deployments: Whether HELM 0.2 made the run; it looks models up by model name and puts the run times
            first.
    """
    result = state.answer
    runtime, batch_size = result.request_time, None if result.request_time is None else 1
    if result.batch_request_time is not None and result.batch_size is not None:
        runtime, batch_size = result.batch_request_time, result.batch_size

    request = state.request
    num_prompt_tokens = None if tokens is None else tokens.count_ids(_prompt(request))
    num_completion_tokens = sum(len(completion.tokens) for completion in result.completions)
    num_output_tokens: int | None = num_completion_tokens
    if request.echo_prompt:
        # A tokenizer that normalises text may count more tokens in the prompt than in the output.
        num_output_tokens = None if num_prompt_tokens is None else max(num_completion_tokens - num_prompt_tokens, 0)

    model = request.model if predates_deployments else request.model_deployment
    known = _known_models()
    denoised = _estimated_runtime(known["denoised_runtimes"].get(model), num_prompt_tokens, num_output_tokens)
    if runtime is not None and result.batch_size:  # HELM fails on a batch size of 0
        denoised = runtime / result.batch_size
    idealized = _estimated_runtime(known["idealized_runtimes"].get(model), num_prompt_tokens, num_output_tokens)

    counts: Named = [("num_completion_tokens", num_completion_tokens)]
    if num_prompt_tokens is not None:
        counts.insert(0, ("num_prompt_tokens", num_prompt_tokens))
    if num_output_tokens is not None:
        counts.append(("num_output_tokens", num_output_tokens))
    training: Named = [
        ("training_co2_cost", known["training_carbon"].get(model)),
        ("training_energy_cost", known["training_energy"].get(model)),
    ]
    observed = _present([("inference_runtime", runtime), ("batch_size", batch_size)])
    estimated = _present([("inference_denoised_runtime", denoised), ("inference_idealized_runtime", idealized)])
    if predates_deployments:
        return [*counts, *observed, *training, *estimated]
    return [*counts, *training, *observed, *estimated]


def _present(statistics: Named) -> Named:
    return [(name, value) for name, value in statistics if value is not None]


def _prompt(request: Request) -> str:
    if request.multimodal_prompt is None:
        return request.prompt
    media = request.multimodal_prompt.get("media_objects", [])
    return "".join(item.get("text") or "" for item in media if str(item.get("content_type")).startswith("text"))


def _estimated_runtime(
    profile: dict[str, Any] | None, num_prompt_tokens: int | None, num_output_tokens: int | None
) -> float | None:
    """Seconds estimated from a model's profile: the next longer profiled prompt in proportion, plus output tokens."""
    if profile is None or num_prompt_tokens is None or num_output_tokens is None:
        return None
    profiled: dict[int, float] = {int(size): seconds for size, seconds in profile["runtime_for_prompt_tokens"].items()}
    size = min((size for size in profiled if size >= num_prompt_tokens), default=max(profiled))
    runtime: float = profiled[size] * (num_prompt_tokens / size)
    if num_output_tokens > 0:
        runtime += profile["runtime_per_output_token"] * (num_output_tokens - 1)
    overhead = profile.get("overhead")
    return runtime if overhead is None else runtime + overhead


@cache
def _known_models() -> dict[str, Any]:
    text = resources.files("assay.helm").joinpath("efficiency.json").read_text()
    return dict(json.loads(text))
