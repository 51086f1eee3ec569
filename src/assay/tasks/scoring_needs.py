"""Checks before the first request that a task's scorer will find what it imports and loads.

Python that comes with a task may import a module, or load a metric from the Hugging Face hub, inside the function that
needs it. The functions that score are read for that, with those of their own file that they call.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import textwrap
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import TYPE_CHECKING, Any

from assay.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from assay.tasks.protocol import Task

_METHODS = ("process_results", "aggregation")
_PACKAGES = {
    "antlr4": "antlr4-python3-runtime==4.11",
    "bert_score": "bert-score",
    "rouge_score": "rouge-score",
    "sklearn": "scikit-learn",
}
"""The package of a module, where the two have different names."""


def _package_of(module: str) -> str:
    """What to install for a module."""
    top = module.partition(".")[0]
    return _PACKAGES.get(top, top)


def why_missing(module: str) -> str | None:
    """Why a module cannot be imported, as a clause after its name, with what to do; None if it is there.

    Packages that lie around it are imported to find out.
    """
    top = module.partition(".")[0]
    try:
        if importlib.util.find_spec(top) is None:
            return f"which is not installed: pip install {_package_of(module)}"
        if importlib.util.find_spec(module) is not None:
            return None
    except ModuleNotFoundError:
        pass
    except Exception:  # found out where it is imported
        return None
    return f"which the installed {_release_of(top)} does not have: the task is written for another release of it"


def _release_of(module: str) -> str:
    packages = packages_distributions().get(module, [module])
    try:
        return f"{packages[0]} {version(packages[0])}"
    except PackageNotFoundError:
        return module


def require_scoring_needs(tasks: Mapping[str, Task]) -> None:
    """Make sure that the tasks' scorers find what they import and load.

    Args:
        tasks: lm-eval's Task objects by name.

    Raises:
        MissingDependencyError: names the task, and what to install.
    """
    for name, task in tasks.items():
        for function in _with_callees(_scorers(task)):
            modules, metrics = _needs(function)
            for module in modules:
                if (reason := why_missing(module)) is not None:
                    raise MissingDependencyError(
                        f"task '{name}' needs the Python module '{module}' for scoring, {reason}"
                    )
            for metric in metrics:
                if (reason := _loading_fault(metric)) is not None:
                    raise MissingDependencyError(
                        f"task '{name}' scores with the metric '{metric}' of the Hugging Face hub, which cannot be "
                        f"loaded: {reason}"
                    )


def _scorers(task: Task) -> Iterator[Callable[..., Any]]:
    """The functions of the task's own that score."""
    config = task.get_config
    yield from (value for entry in config("metric_list") or () for value in entry.values() if callable(value))
    steps = (step for entry in config("filter_list") or () for step in entry["filter"])
    yield from (step["function"] for step in steps if callable(step.get("function")))
    if callable(config("process_results")):
        yield config("process_results")
    if type(task).__name__ != "ConfigurableTask":
        yield from (getattr(task, name) for name in _METHODS)


def _with_callees(functions: Iterable[Callable[..., Any]]) -> Iterator[Callable[..., Any]]:
    waiting: list[Any] = list(functions)
    seen = set()
    while waiting:
        function = waiting.pop()
        while isinstance(function, functools.partial):
            function = function.func
        function = inspect.unwrap(getattr(function, "__func__", function))
        if function in seen or not inspect.isfunction(function) or function.__module__.startswith("lm_eval.api."):
            continue
        seen.add(function)
        yield function
        named = (function.__globals__.get(name) for name in function.__code__.co_names)
        waiting += [each for each in named if getattr(each, "__module__", None) == function.__module__]


def _needs(function: Callable[..., Any]) -> tuple[list[str], list[str]]:
    """Modules that a function imports, and metrics that it loads; not what it tries to and can do without."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return [], []
    modules: list[str] = []
    metrics: list[str] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Try):
            continue
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.append(node.module)
        elif isinstance(node, ast.Call) and (metric := _metric_loaded(node)):
            metrics.append(metric)
        waiting += ast.iter_child_nodes(node)
    return modules, metrics


def _metric_loaded(call: ast.Call) -> str | None:
    """The name in ``evaluate.load("name")``."""
    loads = isinstance(call.func, ast.Attribute) and call.func.attr == "load"
    if not loads or "evaluate" not in ast.unparse(call.func) or len(call.args) != 1 or call.keywords:
        return None
    (argument,) = call.args
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


@functools.cache
def _loading_fault(metric: str) -> str | None:
    """Why a metric cannot be loaded, in one line; None if it can."""
    import evaluate

    try:
        evaluate.load(metric)
    except Exception as error:  # whatever the hub, the network or the metric's own code raises
        return " ".join(str(error).split()) or type(error).__name__
    return None
