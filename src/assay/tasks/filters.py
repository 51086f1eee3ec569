"""lm-eval makes a task's filters anew for each use; those of its own library hold nothing but their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_LIBRARY = "lm_eval.filters."


def keep_filters(task: Any) -> list[Any]:
    """Let the task use its filters of lm-eval's library again and again; its filter ensembles.

    Filters that come with the task may hold more, and are still made for each use. Doing it again changes nothing.
    """
    ensembles = list(getattr(task, "_filters", []))
    for ensemble in ensembles:
        ensemble.filters = [_kept(make) for make in ensemble.filters]
    return ensembles


def _kept(make: Callable[[], Any]) -> Callable[[], Any]:
    made = make()
    return (lambda: made) if type(made).__module__.startswith(_LIBRARY) else make
