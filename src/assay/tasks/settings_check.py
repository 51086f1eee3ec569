"""Refuses what a task's YAML says but nobody can have meant, before anything is asked of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError, TaskConfigError
from assay.tasks.gen_kwargs import generation_fault
from assay.tasks.raised import words_of

if TYPE_CHECKING:
    from collections.abc import Mapping


def refuse_odd_settings(tasks: Mapping[str, Any]) -> None:
    """Refuse repeats, generation settings and filters that would fail at the first request or the first answer.

    Args:
        tasks: lm-eval's Task objects by name, the user's options applied.

    Raises:
        TaskConfigError: names the task and the setting.
    """
    for name, task in tasks.items():
        repeats = task.get_config("repeats")
        if repeats is not None and (not isinstance(repeats, int) or isinstance(repeats, bool) or repeats < 1):
            raise TaskConfigError(f"task '{name}': repeats is {repeats!r}; it must be a whole number of at least 1")
        settings = task.get_config("generation_kwargs")
        if settings is not None and (fault := generation_fault(settings)):
            raise TaskConfigError(f"task '{name}': generation_kwargs: {fault}")
        _refuse_odd_filters(name, task)


def refuse_unlogged_answers(tasks: Mapping[str, Any]) -> None:
    """Refuse tasks that are only asked, and not scored, where their answers are not to be written either.

    Args:
        tasks: lm-eval's Task objects by name.

    Raises:
        SpecificationError: names the task.
    """
    for name, task in tasks.items():
        if "bypass" in getattr(task, "_metric_fn_list", {}):
            raise SpecificationError(
                f"task '{name}' has the metric bypass, which scores nothing: its samples file is all there is of it; "
                "leave out --no-log-samples (log_samples = false)"
            )


def _refuse_odd_filters(name: str, task: Any) -> None:
    for ensemble in getattr(task, "_filters", []):
        for make in ensemble.filters:
            try:
                make()
            except Exception as error:  # filters may be foreign code
                raise TaskConfigError(
                    f"task '{name}': filter '{ensemble.name}' cannot be made: {words_of(error)}"
                ) from None
