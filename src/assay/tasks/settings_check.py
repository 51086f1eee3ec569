"""Validates the settings of tasks before the first request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import SpecificationError, TaskConfigError
from assay.tasks.gen_kwargs import generation_fault, near_misses
from assay.tasks.selection import some_of
from assay.tasks.task_errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.tasks.protocol import Task
    from assay.types import TaskOptions


def validate_settings(tasks: Mapping[str, Task]) -> None:
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
        _validate_filters(name, task)


def refuse_bypass_without_samples_file(tasks: Mapping[str, Task]) -> None:
    """Refuse tasks that are not scored where their answers are not written either.

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


def setting_warnings(tasks: Mapping[str, Task], options: TaskOptions) -> list[str]:
    """Warnings about settings that are allowed but may be mistakes, one line each.

    Args:
        tasks: lm-eval's Task objects by name, the options applied.
        options: the user's.
    """
    found = []
    if options.limit is not None and options.limit > 1 and int(options.limit) != options.limit:
        found.append(f"limit is {options.limit:g}: above 1 it counts documents, {int(options.limit)} of each task")
    for name, meant in near_misses(options.gen_kwargs).items():
        found.append(f"gen_kwargs has {name!r}, which is sent as it is: do you mean {meant!r}?")
    fixed = [name for name, task in tasks.items() if options.num_fewshot and task.get_config("num_fewshot") == 0]
    if fixed:
        found.append(
            f"num_fewshot = {options.num_fewshot} does not count for {some_of(fixed)}: as in lm-eval, a task whose own "
            "YAML says 0 is asked without examples"
        )
    if options.gen_kwargs and not any(task.get_config("output_type") == "generate_until" for task in tasks.values()):
        found.append("gen_kwargs do not count here: they are for generated answers, and no task of this run has any")
    for task_name, task in tasks.items():
        own = [name for name in task.get_config("generation_kwargs") or () if name not in options.gen_kwargs]
        for name, meant in near_misses(own).items():
            found.append(f"task '{task_name}' has the generation setting {name!r}: does it mean {meant!r}?")
    return found


def _validate_filters(name: str, task: Task) -> None:
    from lm_eval.filters.selection import TakeKFilter

    repeats = task.get_config("repeats") or 1
    for ensemble in getattr(task, "_filters", []):
        for make in ensemble.filters:
            try:
                step = make()
            except Exception as error:  # filters may be foreign code
                raise TaskConfigError(
                    f"task '{name}': filter '{ensemble.name}' cannot be made: {describe_error(error)}"
                ) from None
            if isinstance(step, TakeKFilter) and step.k > repeats:
                raise TaskConfigError(
                    f"task '{name}': filter '{ensemble.name}' takes the first {step.k} answers to each document, and "
                    f"repeats is {repeats}: ask at least {step.k} times (--repeats {step.k})"
                )
