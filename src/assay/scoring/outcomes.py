"""The outcome of a sample, from its answers and what a filter extracted from them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.types import Answer


def outcome_of(answers: Sequence[Answer], filtered: Sequence[Any], fallbacks: Sequence[Any]) -> Outcome:
    """The outcome of a sample that has all its answers.

    Args:
        answers: the answers to all of its requests.
        filtered: what a filter extracted from them.
        fallbacks: what that filter returns if it finds no answer.
    """
    answers = [answer for answer in answers if answer.logprob is None]
    if not answers:
        return Outcome.ANSWERED  # A log-likelihood has no other outcome.
    if "length" in [answer.finish_reason for answer in answers]:
        return Outcome.TRUNCATED
    if not [answer for answer in answers if answer.text and not answer.text.isspace()]:
        return Outcome.EMPTY
    if fallbacks and not [value for value in filtered if value not in fallbacks]:
        return Outcome.UNEXTRACTED
    return Outcome.ANSWERED


def fallbacks_of(ensemble: Any) -> tuple[Any, ...]:
    """What one of lm-eval's filter ensembles returns if it finds no answer."""
    steps = [make() for make in ensemble.filters]
    return tuple(step.fallback for step in steps if getattr(step, "fallback", None) is not None)


def fallbacks_in_config(config: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """By filter, what it returns if it finds no answer, from a task's configuration in a results file.

    Filters that are the task's own Python are left out: the configuration has only their names.
    """
    from lm_eval.api.registry import filter_registry
    from lm_eval.filters import build_filter_ensemble

    found = {}
    for entry in config.get("filter_list") or ():
        if not all(step["function"] in filter_registry for step in entry["filter"]):
            continue
        steps = [
            (step["function"], {name: value for name, value in step.items() if name != "function"} or None)
            for step in entry["filter"]
        ]
        with contextlib.suppress(TypeError, ValueError):  # another version's parameters
            found[str(entry["name"])] = fallbacks_of(build_filter_ensemble(entry["name"], steps))
    return found
