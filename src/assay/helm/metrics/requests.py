"""Statistics of a single request that many metrics share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.helm.metrics.efficiency import efficiency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import AdapterSpec, RequestResult, RequestState, Token
    from assay.helm.metrics.table import ContextTotals, Named
    from assay.helm.tokenization import TokenCounter

_FINISH_REASONS = ("length", "stop", "endoftext", "unknown")


def request_statistics(adapter_spec: AdapterSpec, state: RequestState, tokens: TokenCounter | None) -> Named:
    """Size, cost, finish reason and truncation of an answered request."""
    reason = _finish_reason(state.answer)
    return [
        ("num_references", len(state.instance.references)),
        ("num_train_trials", adapter_spec.num_train_trials),
        *efficiency(state, tokens, adapter_spec.predates_deployments),
        *((f"finish_reason_{name}", int(name == reason)) for name in _FINISH_REASONS),
        ("num_train_instances", state.num_train_instances),
        ("prompt_truncated", int(state.prompt_truncated)),
    ]


def language_modeling_statistics(state: RequestState) -> Named:
    """Log probability of the first completion, with its numbers of tokens and bytes."""
    tokens: Sequence[Token] = state.answer.completions[0].tokens
    if state.num_conditioning_tokens > 0 and tokens and tokens[0].text == "":
        tokens = tokens[1:]  # the AI21 tokenizer's empty first token
    tokens = tokens[state.num_conditioning_tokens :]
    return [
        ("logprob", sum(token.logprob for token in tokens)),
        ("num_perplexity_tokens", len(tokens)),
        ("num_bytes", sum(_num_bytes(token.text) for token in tokens)),
    ]


def perplexity(totals: ContextTotals) -> Named:
    r"""Perplexity :math:`e^{-\sum \log p / tokens}`, bits per byte and log probability per byte of a context."""
    logprob, num_tokens, num_bytes = (
        totals.sums.get(name) for name in ("logprob", "num_perplexity_tokens", "num_bytes")
    )
    statistics: Named = []
    if logprob is None:
        return statistics
    if num_tokens is not None and num_tokens.total > 0:
        statistics.append(("perplexity", _power_of_e(-logprob.total / num_tokens.total)))
    if num_bytes is not None and num_bytes.total > 0:
        statistics.append(("bits_per_byte", -logprob.total / num_bytes.total / math.log(2)))
        statistics.append(("logprob_per_byte", logprob.total / num_bytes.total))
    return statistics


def _finish_reason(result: RequestResult) -> str:
    reason = (result.completions[0].finish_reason or {}).get("reason")
    return reason if reason in _FINISH_REASONS else "unknown"


def _num_bytes(text: str) -> int:
    r"""Bytes of a token; ``bytes:\xe2\x80`` stands for bytes that are not a whole character."""
    if text.startswith("bytes:"):
        return text.count("\\x")
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _power_of_e(exponent: float) -> float:
    try:
        return float(math.e**exponent)
    except OverflowError:
        return math.inf
