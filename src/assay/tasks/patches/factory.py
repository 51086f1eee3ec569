"""lm-eval's task factory, with readable errors and document preparation that runs once.

Imports lm-eval's task code, which takes a second; only `assay.tasks.library` imports this, when tasks are loaded.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import random
import re
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import yaml
from lm_eval.tasks import _yaml_loader
from lm_eval.tasks._factory import TaskFactory
from lm_eval.tasks._index import Kind

from assay.errors import AssayError, MissingDependencyError, TaskConfigError, UnsupportedTaskError
from assay.tasks.nltk_data import needs_punkt_tab, require_punkt_tab
from assay.tasks.patches.hub_metrics import serving_hub_metrics
from assay.tasks.randomness import never_draws
from assay.tasks.rows import is_table
from assay.tasks.scoring_needs import why_missing
from assay.tasks.task_errors import describe_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_IFEVAL_PACKAGES = frozenset({"immutabledict", "langdetect", "nltk"})
_ASKS_FOR_SOFTWARE = re.compile(r"\b(?:pip install|please install|is not installed)\b", re.IGNORECASE)

_RUNS_CPP = "longproc_pseudo_to_code"


class Factory(TaskFactory):  # type: ignore[misc]
    """Builds tasks and groups as lm-eval does.

    Args:
        meta: what lm-eval writes into every task's ``metadata``.
        may_run_code: tasks that run code which the model writes are built, too.
    """

    def __init__(self, *, meta: dict[str, Any], may_run_code: bool = False) -> None:
        super().__init__(meta=meta)
        self._may_run_code = may_run_code

    def build(self, entry: Any, *, overrides: Any = None, registry: Any) -> Any:
        """Build a task, a group or a tag's tasks.

        Raises:
            TaskConfigError: Its YAML or Python is broken.
            MissingDependencyError: Its Python needs a package, a program or a metric that is not there.
            UnsupportedTaskError: It runs code and may not, or needs more than text.
            DataNotFoundError: Its data set cannot be found.
            FileFormatError: A file of its data set is damaged.
        """
        with _errors_located(entry), serving_hub_metrics():
            return super().build(entry, overrides=overrides, registry=registry)

    def _build_task(self, entry: Any, overrides: Any) -> Any:
        with _errors_located(entry):
            return super()._build_task(entry, overrides)

    def _build_group_members(
        self, member_list: list[Any], group_name: str, overrides: dict[str, Any], registry: Any
    ) -> Any:
        for member in member_list:
            # lm-eval takes an unknown name for a task that the group itself defines; then it has to say of what.
            if isinstance(member, str) and member not in registry and not overrides:
                raise TaskConfigError(f"group {group_name!r} names {member!r}, which is no task, group or tag")
        return super()._build_group_members(member_list, group_name, overrides, registry)

    def _load_full_config(self, entry: Any, overrides: Any = None) -> Any:
        try:
            with _nltk_data_first():
                config = super()._load_full_config(entry, overrides)
        except Exception:
            # A task that is refused anyway may need packages to load; its YAML is enough to refuse it.
            self._refuse(entry, _header(entry))
            raise
        # Before its data and metrics are fetched, which could fail for less telling reasons.
        self._refuse(entry, config)
        _prepare_documents_once(config)
        if isinstance(config.get("fewshot_config"), dict):
            _prepare_documents_once(config["fewshot_config"])
        return config

    def _refuse(self, entry: Any, config: Mapping[str, Any]) -> None:
        if entry.name.startswith(_RUNS_CPP):
            raise UnsupportedTaskError(
                f"task {entry.name!r} compiles C++ that the model writes and runs it; Assay's sandbox runs Python only"
            )
        refuse_unsupported(
            entry.name,
            runs_code=bool(config.get("unsafe_code")) and not self._may_run_code,
            is_multimodal=bool(config.get("doc_to_image") or config.get("doc_to_audio")),
        )


def _header(entry: Any) -> Mapping[str, Any]:
    """A task's YAML, read without importing its Python; empty where it cannot be read."""
    try:
        config: Mapping[str, Any] = _yaml_loader.load_yaml(entry.yaml_path, resolve_func=False)
    except Exception:
        return {}
    return config


def refuse_unsupported(name: str, runs_code: bool, is_multimodal: bool) -> None:
    """Refuse a task that Assay cannot run, or may not.

    Args:
        name: the task.
        runs_code: it runs code that the model writes, and nobody has allowed that.
        is_multimodal: it needs more than text.

    Raises:
        UnsupportedTaskError: One of these holds.
    """
    if runs_code:
        raise UnsupportedTaskError(
            f"task {name!r} runs code that the model writes (in a sandbox); --confirm-run-unsafe-code, or "
            "confirm_run_unsafe_code = true among the options, allows it"
        )
    if is_multimodal:
        raise UnsupportedTaskError(f"task {name!r} needs images or sound; Assay sends text only")


# -- documents --------------------------------------------------------------------------------------------------------


def _prepare_documents_once(config: dict[str, Any]) -> None:
    """Let ``process_docs`` prepare each split once.

    lm-eval calls it whenever it needs the documents. Where it draws random numbers, prompts and scores then see
    different documents, unless the datasets library happens to have the first call's result in its cache.
    """
    function = config.get("process_docs")
    if isinstance(function, functools.partial):
        config["process_docs"] = functools.partial(_once(function.func), *function.args, **function.keywords)
    elif inspect.isfunction(function):
        config["process_docs"] = _once(function)


def _once(function: Callable[..., Any]) -> Any:
    results: dict[Any, tuple[Any, Any]] = {}

    @functools.wraps(function)
    def process_once(*args: Any, **options: Any) -> Any:
        key = (*map(id, args), repr(sorted(options.items())))
        if key in results:
            return results[key][1]
        if never_draws(function):
            result = function(*args, **options)
        else:
            before = _random_streams(function)
            with _no_stored_results():
                result = function(*args, **options)
            process.drew_random_numbers |= _random_streams(function) != before
        if is_table(result):
            # The arguments are held so that no other object can get their ids.
            results[key] = (args, result)
        return result

    process: Any = process_once
    process.drew_random_numbers = False
    return process


def _random_streams(function: Callable[..., Any]) -> list[Any]:
    """The state of each stream that a function may draw from: Python's, NumPy's and its own module's."""
    own = [stream for stream in function.__globals__.values() if isinstance(stream, random.Random)]
    state: Any = np.random.get_state()
    _, numbers, *place = state
    return [random.getstate(), bytes(numbers), place, *(stream.getstate() for stream in own)]


@contextlib.contextmanager
def _no_stored_results() -> Iterator[None]:
    """Let the datasets library compute anew, so that a first run and a later one draw the same numbers."""
    was_enabled = datasets.is_caching_enabled()
    datasets.disable_caching()
    try:
        yield
    finally:
        if was_enabled:
            datasets.enable_caching()


# -- errors -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _nltk_data_first() -> Iterator[None]:
    """Find NLTK's data before a task's Python is imported that would try to download it."""
    load_module = _yaml_loader._load_module_with_cache

    def load(path: Path) -> Any:
        if needs_punkt_tab(path.parent):
            require_punkt_tab()
        return load_module(path)

    _yaml_loader._load_module_with_cache = load
    try:
        yield
    finally:
        _yaml_loader._load_module_with_cache = load_module


@contextlib.contextmanager
def _errors_located(entry: Any) -> Iterator[None]:
    """Turn whatever goes wrong with a task or group into one line that names it and its file."""
    name = f"{'group' if entry.kind is Kind.GROUP else 'task'} {entry.name!r}"
    where = name + (f" ({entry.yaml_path})" if entry.yaml_path else "")
    try:
        yield
    except AssayError as error:
        if str(error).startswith(("task ", "group ")):
            raise
        raise type(error)(f"{name}: {error}") from None
    except ImportError as error:
        raise _missing(where, error) from None
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise TaskConfigError(f"{where}{line}: not valid YAML: {error.problem}") from None
    except (Exception, SystemExit) as error:
        kind = MissingDependencyError if _ASKS_FOR_SOFTWARE.search(str(error)) else TaskConfigError
        # What lm-eval's loader looks up for a metric of which it knows no aggregation.
        is_unaggregated = isinstance(error, KeyError) and error.args == (None,)
        reason = "a metric in its metric_list has no 'aggregation', and lm-eval knows none for it"
        raise kind(f"{where} cannot be loaded: {reason if is_unaggregated else describe_error(error)}") from None


def _missing(where: str, error: ImportError) -> AssayError:
    chain: list[BaseException] = [error]
    while (before := _raised_over(chain[-1])) is not None:
        chain.append(before)
    root = chain[-1]
    if not isinstance(root, ModuleNotFoundError):
        return TaskConfigError(f"{where} cannot be loaded: {describe_error(root)}")
    if root.name in _IFEVAL_PACKAGES:
        return MissingDependencyError(f'{where} needs the package {root.name}: pip install "assay[ifeval]"')
    told = f"the Python module {root.name!r}" if root.name else "a package"
    reason = (why_missing(root.name) if root.name else None) or "which is not installed"
    # What the task's author says about it, if anything: often which package to install.
    advice = [str(link) for link in chain if isinstance(link, ImportError) and link.name is None]
    if advice:
        reason = f"{reason.partition(': pip')[0]} ({' '.join(advice[0].split())})"
    return MissingDependencyError(f"{where} needs {told}, {reason}")


def _raised_over(error: BaseException) -> BaseException | None:
    """The error that `error` was raised for, or while handling."""
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)
