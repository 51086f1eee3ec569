"""Caches lm-eval's ``exact_match``, which compares the same pairs of strings again and again, as NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.tasks.protocol import Task

import functools
from typing import Any

_KEPT = 4096
"""The most pairs kept."""
_LONGEST = 500
"""Characters; what a filter extracts is short, a whole response is hardly ever seen twice."""


def cache_exact_matches(task: Task) -> None:
    """Let the task keep lm-eval's verdicts on pairs of short strings. Doing it again changes nothing."""
    from lm_eval.api.metrics import exact_match_fn

    functions = getattr(task, "_metric_fn_list", {})
    if functions.get("exact_match") is exact_match_fn:
        functions["exact_match"] = _Remembering(exact_match_fn, vars(task)["_metric_fn_kwargs"]["exact_match"])


class _Remembering:
    """Stands in for ``exact_match_fn``, a pure function, as one task calls it."""

    def __init__(self, exact_match: Any, settings: dict[str, Any]) -> None:
        self._exact_match = exact_match
        self._settings = settings
        """The task's own keyword arguments; a call with others is passed through."""
        self._verdict = functools.lru_cache(maxsize=_KEPT)(self._of_pair)

    def __call__(self, *, references: Any, predictions: Any, **settings: Any) -> dict[str, Any]:
        if _is_short_text(references) and _is_short_text(predictions) and settings == self._settings:
            return {"exact_match": self._verdict(references[0], predictions[0])}
        verdict: dict[str, Any] = self._exact_match(references=references, predictions=predictions, **settings)
        return verdict

    def _of_pair(self, reference: str, prediction: str) -> float:
        verdict = self._exact_match(references=[reference], predictions=[prediction], **self._settings)
        return float(verdict["exact_match"])


def _is_short_text(values: Any) -> bool:
    return type(values) is list and len(values) == 1 and type(values[0]) is str and len(values[0]) <= _LONGEST
