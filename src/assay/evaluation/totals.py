"""Totals of a run's responses: tokens, times, attempts, failures by cause, other models named in replies."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from assay.client.thinking import USUAL_END
from assay.results.document import ReasoningTotals, Totals
from assay.types import Answer, Response

if TYPE_CHECKING:
    from collections.abc import Sequence


_BEGINS_THINKING = "<think>"


class RunTotals:
    """Sums over responses. It keeps eight bytes for each response, and eight more if it was streamed."""

    def __init__(self, thinking_budget: int | None = None) -> None:
        self._thinking_budget = thinking_budget
        self._over_budget = 0
        self._prompt_tokens = 0
        self._completion_tokens = 0
        self._without_usage = 0
        self._reasoned = 0
        self._reasoning_tokens = 0
        self._cut_off_thinking = 0
        self._attempts = 0
        self._latencies = array("d")
        self._ttfts = array("d")
        self._other_models: Counter[str] = Counter()
        self._causes: Counter[str] = Counter()

    def add(self, responses: Sequence[Response]) -> None:
        """Count a sample's responses."""
        for response in responses:
            self._attempts += response.attempts
            if not isinstance(response, Answer):
                self._causes[response.cause] += 1
                continue
            self._latencies.append(response.latency)
            if response.ttft is not None:
                self._ttfts.append(response.ttft)
            if response.model is not None:
                self._other_models[response.model] += 1
            self._prompt_tokens += response.prompt_tokens or 0
            self._completion_tokens += response.completion_tokens or 0
            self._without_usage += response.completion_tokens is None
            self._reasoned += bool(response.reasoning)
            self._reasoning_tokens += response.reasoning_tokens or 0
            if self._thinking_budget is not None:
                self._over_budget += (response.reasoning_tokens or 0) > self._thinking_budget
            self._cut_off_thinking += is_cut_off_thinking(response)

    @property
    def answers(self) -> int:
        """How many answers were received."""
        return len(self._latencies)

    def summary(self, seconds: float) -> Totals:
        """The totals for the results.

        Args:
            seconds: how long the run took; of a resumed run, the part since it was resumed.
        """
        latencies = sorted(self._latencies)
        return Totals(
            answers=len(latencies),
            failures=dict(sorted(self._causes.items())),
            attempts=self._attempts,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            answers_without_usage=self._without_usage,
            latency_seconds=_quantiles(latencies),
            reasoning=self._reasoning(),
            ttft_seconds=_quantiles(sorted(self._ttfts)) if self._ttfts else UNSET,
            other_models=dict(self._other_models.most_common()) if self._other_models else UNSET,
            seconds=seconds,
        )

    def _reasoning(self) -> ReasoningTotals | UnsetType:
        if not (self._reasoned or self._cut_off_thinking):
            return UNSET
        is_counted = bool(self._reasoning_tokens)
        return ReasoningTotals(
            answers=self._reasoned,
            tokens=self._reasoning_tokens or UNSET,
            cut_off=self._cut_off_thinking,
            over_budget=UNSET if self._thinking_budget is None else self._over_budget if is_counted else None,
        )


def is_cut_off_thinking(answer: Answer) -> bool:
    """Whether an answer reached its token limit before the reasoning ended."""
    if answer.finish_reason != "length":
        return False
    text = answer.text or ""
    return bool(answer.reasoning) if not text.strip() else _BEGINS_THINKING in text and USUAL_END not in text


def _quantiles(ordered: Sequence[float]) -> dict[str, float | None]:
    return {f"p{share}": _quantile(ordered, share / 100) for share in (50, 90, 99)}


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
