"""Remarks about a run, for the lines below its scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from assay._util.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.gate.run import ModelOutcome
    from assay.results.document import ReasoningTotals, ResultsDocument, Totals

_MODELS_SHOWN = 3


def remarks(document: ResultsDocument) -> list[str]:
    """The lines that stand below a run's table."""
    totals = document.additions.totals
    if totals is None:
        return []
    return [*_first_tokens(totals), *_reasoning(totals), *other_models(totals, document.model_name or "?")]


def _reasoning(totals: Totals) -> list[str]:
    reasoning = totals.reasoning
    if reasoning is UNSET:
        return []
    line = f"reasoning: in {reasoning.answers} of {totals.answers} answers"
    if tokens := reasoning.tokens or 0:
        line += f", {tokens / max(1, reasoning.answers):.0f} tokens on average"
    if cut_off := reasoning.cut_off:
        line += f"; {cut_off} cut off before an answer: allow more tokens (--gen-kwargs max_gen_toks=…)"
    return [line, *_thinking_budget(reasoning)]


def _thinking_budget(reasoning: ReasoningTotals) -> list[str]:
    over = reasoning.over_budget
    if over is None:
        return ["thinking budget: the server counts no tokens of reasoning, so whether it keeps to it is not known"]
    if over is UNSET or not over:
        return []
    line = (
        f"thinking budget: {over} of {reasoning.answers} answers went beyond it: the server does not keep to "
        "thinking_token_budget, which vLLM knows; others take it by another name (--extra-body)"
    )
    return [line]


def _first_tokens(totals: Totals) -> list[str]:
    seconds = totals.ttft_seconds
    if seconds is UNSET:
        return []
    figures = ", ".join(f"{name} {seconds[name]:.3f} s" for name in ("p50", "p90", "p99"))
    return [f"time to first token  {figures}"]


def remarks_on(model: ModelOutcome) -> list[str]:
    """The lines that stand below a gate's checks of one model."""
    return _others(model.other_models, model.model)


def other_models(totals: Totals | None, asked: str) -> list[str]:
    """A warning where answers name another model than was asked for; nothing else."""
    return _others((totals and totals.other_models) or {}, asked)


def _others(others: Mapping[str, int], asked: str) -> list[str]:
    if not others:
        return []
    (first, count), *rest = list(others.items())[:_MODELS_SHOWN]
    shown = [
        f"{count} {'answer names' if count == 1 else 'answers name'} {printable(repr(first))}",
        *(f"{count} {printable(repr(name))}" for name, count in rest),
    ]
    more = f" and {len(others) - _MODELS_SHOWN} more names" if len(others) > _MODELS_SHOWN else ""
    return [f"warning: asked for {printable(repr(asked))}, but {', '.join(shown)}{more}"]
