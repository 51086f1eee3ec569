"""Reuses a task's filters, which lm-eval makes for each use: those of its library hold nothing but their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.tasks.protocol import Task

_LIBRARY = "lm_eval.filters."


def cache_filters(task: Task) -> list[Any]:
    """Let the task reuse its filters of lm-eval's library, and return its filter ensembles.

    Filters that come with the task may hold more, and are still made for each use. Doing it again changes nothing.
    """
    ensembles = list(getattr(task, "_filters", []))
    for ensemble in ensembles:
        ensemble.filters = [_kept(make) for make in ensemble.filters]
    return ensembles


def are_of_library(ensembles: Sequence[Any]) -> bool:
    """Whether all of the filters are of lm-eval's library, and none came with the task."""
    return all(_is_of_library(make()) for ensemble in ensembles for make in ensemble.filters)


def _kept(make: Callable[[], Any]) -> Callable[[], Any]:
    made = make()
    return (lambda: made) if _is_of_library(made) else make


def _is_of_library(made: Any) -> bool:
    """The library's ``custom`` filter only wraps a function that comes with the task."""
    return type(made).__module__.startswith(_LIBRARY) and not any(map(callable, vars(made).values()))
