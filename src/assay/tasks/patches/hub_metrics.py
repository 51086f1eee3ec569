"""Metrics that lm-eval's tasks would fetch from the Hugging Face hub as Python files, served from here.

``evaluate.load(name)`` downloads code and runs it. Assay has copies of those that tasks ask for, with the same
values; a task that scores with another one is refused before the first request.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import TYPE_CHECKING, Any, NoReturn

from assay.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.tasks.protocol import Task

_COPIES = {
    "accuracy": ("assay.tasks.patches.hub_copies", "Accuracy"),
    "code_eval": ("assay.tasks.code_eval", "CodeEval"),
    "f1": ("assay.tasks.patches.hub_copies", "F1"),
    "rouge": ("assay.tasks.patches.hub_copies", "Rouge"),
    "squad_v2": ("assay.tasks.patches.squad_metric", "SquadV2"),
}
"""By the hub's name, where the copy is."""
_CRUXEVAL = ("tasks", "cruxeval", "utils.py")
"""Has its own copy of code_eval, whose programs would run unconfined."""


@contextlib.contextmanager
def serving_hub_metrics() -> Iterator[None]:
    """Give tasks that are loaded in this block Assay's copies of metrics, then and whenever they ask later."""
    from lm_eval.api import task as task_module
    from lm_eval.tasks import _yaml_loader

    load_module, get_metric = _yaml_loader._load_module_with_cache, task_module.get_metric
    _yaml_loader._load_module_with_cache = functools.partial(_load_module, load_module)
    task_module.get_metric = functools.partial(_get_metric, get_metric)
    try:
        yield
    finally:
        _yaml_loader._load_module_with_cache, task_module.get_metric = load_module, get_metric


def refuse_missing_metrics(name: str, task: Task) -> None:
    """Refuse a task that will call a metric of which Assay has no copy.

    Raises:
        MissingDependencyError: with the metric's name.
    """
    if task.get_config("output_type") != "generate_until" or task.get_config("process_results"):
        return  # lm-eval then computes what it reports without calling the metric
    for function in getattr(task, "_metric_fn_list", {}).values():
        if isinstance(function, _Missing):
            raise MissingDependencyError(f"task {name!r}: {function.reason}")


def _load_module(load_module: Any, path: Path) -> Any:
    """Load a task's Python."""
    if _speaks_of_evaluate(path):
        import evaluate

        evaluate.load = _load
    try:
        module = load_module(path)
    except Exception as error:
        if (refusal := _refusal_behind(error)) is not None:
            raise refusal from None
        raise
    if path.parts[-3:] == _CRUXEVAL:
        from assay.tasks.code_eval import check_correctness

        module.check_correctness = check_correctness
    return module


def _refusal_behind(error: BaseException | None) -> MissingDependencyError | None:
    """The refusal of a metric, where a task's Python has caught it and raised another error."""
    while error is not None and not isinstance(error, MissingDependencyError):
        error = error.__cause__ or error.__context__
    return error


@functools.cache
def _speaks_of_evaluate(path: Path) -> bool:
    return b"evaluate" in path.read_bytes()


def _get_metric(get_metric: Any, name: str, hf_evaluate_metric: bool = False) -> Any:
    """Stand in for lm-eval's function, which asks the hub for what lm-eval does not have itself."""
    from lm_eval.api.registry import metric_registry

    if not hf_evaluate_metric and name in metric_registry:
        return get_metric(name)
    try:
        return _load(name).compute
    except MissingDependencyError:
        return _Missing(name)


def _load(path: str, *_: Any, **__: Any) -> Any:
    """Stand in for ``evaluate.load``."""
    if path not in _COPIES:
        return _Missing(path)()
    module, name = _COPIES[path]
    return getattr(importlib.import_module(module), name)()


class _Missing:
    """Stands in for a metric of which Assay has no copy."""

    def __init__(self, name: str) -> None:
        self.reason = (
            f"scoring needs the metric '{name}', which lm-eval fetches from the Hugging Face hub as a program; "
            "Assay has no copy of it"
        )

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise MissingDependencyError(self.reason)
