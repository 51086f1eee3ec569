"""Every task name that lm-eval knows, loaded by Assay as far as the data at hand allows: would it run, and if not, why?

The reasons are a closed set. A refusal that blames the task must be shared by lm-eval's own loader; anything else that
goes wrong counts as unexplained, and so fails the sweep.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import (
    AssayError,
    DataNotFoundError,
    MissingDependencyError,
    TaskConfigError,
    UnsupportedTaskError,
)
from assay.tasks.index import TaskEntry, TaskIndex, TaskKind, lm_eval_tasks_folder, task_index
from assay.tasks.task_errors import describe_error
from assay.types import LogprobSource, ModelSpec, TaskOptions

if TYPE_CHECKING:
    from types import FrameType

_NAMES_A_PIECE = 400
_SECONDS_A_TASK = 120
_HUB_METRIC = re.compile("scoring needs the metric")
_LOGLIKELIHOOD = ("multiple_choice", "loglikelihood", "loglikelihood_rolling")


class Reason(StrEnum):
    """What keeps a task from running here."""

    NONE = "runs: loaded with its data, first request written"
    DATA = "lacks only its data"
    SOFTWARE = "needs a package or program that is not installed"
    HUB_METRIC = "needs a metric that the evaluate library fetches from the hub as a program"
    UNSAFE_CODE = "runs code that the model writes: only with --confirm-run-unsafe-code"
    OTHER_CODE = "compiles C++ that the model writes, and the sandbox runs Python only"
    MULTIMODAL = "needs images or sound"
    BROKEN = "broken in lm-eval: its own loader fails as well"
    UNEXPLAINED = "unexplained"


class Finding(NamedTuple):
    """What became of one name."""

    name: str
    family: str
    """The folder of lm-eval's that it is in."""
    reason: Reason
    endpoint: str
    """What can ask it: ``chat or completions``, ``completions``, or ``unknown`` where nothing says so."""
    message: str
    """Assay's, or what is unexplained."""


def sweep(data_dir: Path, processes: int, pattern: str = "*") -> Iterator[Finding]:
    """Load every task whose name matches, in `processes` processes; in the order of their files."""
    index = task_index()
    entries = [index.entries[name] for name in index.match(pattern)]
    tasks = sorted(
        (e for e in entries if e.kind in (TaskKind.TASK, TaskKind.PYTHON_TASK)), key=lambda e: (e.path or "", e.name)
    )
    pieces = [tasks[start : start + _NAMES_A_PIECE] for start in range(0, len(tasks), _NAMES_A_PIECE)]
    # Told before the libraries are imported: nothing is fetched, and nobody waits for the hub.
    os.environ["HF_HUB_OFFLINE"] = "1"
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(look_at, pieces, itertools.repeat(str(data_dir))):
            yield from found


class BrokenGroup(NamedTuple):
    """A group or tag that cannot be put together."""

    name: str
    message: str
    is_lm_evals: bool
    """Whether lm-eval's own loader fails likewise."""


def broken_groups() -> list[BrokenGroup]:
    """Put all groups and tags together, of tasks that are but names; return those where that fails."""
    from lm_eval.tasks._factory import TaskFactory

    from assay.tasks.library import Registry, lm_eval_entry, loading
    from assay.tasks.patches.factory import Factory

    index = task_index()
    entries = [entry for entry in index.entries.values() if entry.kind in (TaskKind.GROUP, TaskKind.TAG)]
    broken = []
    with loading(None):
        for entry in entries:
            by_us, by_them = (
                functools.partial(_outline_of(made).build, lm_eval_entry(entry), registry=Registry(index))
                for made in (Factory, TaskFactory)
            )
            try:
                by_us()
            except UnsupportedTaskError:
                continue  # a task's affair
            except AssayError as error:
                broken.append(BrokenGroup(entry.name, str(error), _fails(by_them, str(error))))
    return broken


def _outline_of(factory: type[Any]) -> Any:
    """A factory like this one, whose tasks are but names."""

    class Outline(factory):  # type: ignore[misc]
        def _build_task(self, entry: Any, overrides: Any) -> Any:
            return _NamedOnly(entry.name)

    return Outline(meta={})


class _NamedOnly:
    def __init__(self, name: str) -> None:
        self.task_name = name


# -- in a process of the pool -----------------------------------------------------------------------------------------


def look_at(entries: Sequence[TaskEntry], data_dir: str) -> list[Finding]:
    """Load each of `entries`."""
    from assay.tasks.library import loading

    index = task_index()
    before = signal.signal(signal.SIGALRM, _give_up)
    try:
        with loading(data_dir):
            return [_finding(entry, index) for entry in entries]
    finally:
        signal.signal(signal.SIGALRM, before)


def _give_up(*_: int | FrameType | None) -> None:
    raise TimeoutError(f"not done after {_SECONDS_A_TASK} s")


def _finding(entry: TaskEntry, index: TaskIndex) -> Finding:
    from assay.tasks.library import build

    family = Path(entry.path or "").relative_to(lm_eval_tasks_folder()).parts[0]
    endpoint, reason, message = "unknown", Reason.NONE, ""
    signal.alarm(_SECONDS_A_TASK)
    try:
        tasks, _ = build([entry], index, {})
        (task,) = tasks.values()
        endpoint = _endpoint(task.OUTPUT_TYPE)
        _write_first_request(entry.name, task)
    except AssayError as error:
        message = str(error)
        reason, endpoint = _reason(entry, error, index)
    except BaseException as error:  # escaped from Assay's error tree, which is what this looks for
        reason, message = Reason.UNEXPLAINED, f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return Finding(entry.name, family, reason, endpoint, message)


def _write_first_request(name: str, task: Any) -> None:
    from assay.tasks.requests import RequestWriter, samples

    endpoints = ("chat", "completions") if task.OUTPUT_TYPE == "generate_until" else ("completions",)
    for endpoint in endpoints:
        model = ModelSpec(base_url="http://localhost", model="m", endpoint=endpoint)  # type: ignore[arg-type]
        task.set_fewshot_seed(seed=1234)
        first = next(samples(name, task, RequestWriter(model, None, LogprobSource.ECHO), TaskOptions(limit=1)))
        if not first.requests:
            raise ValueError("the first document asks nothing")


def _reason(entry: TaskEntry, error: AssayError, index: TaskIndex, *, may_run_code: bool = False) -> tuple[Reason, str]:
    config = _config(entry)
    endpoint = _endpoint(_output_type(config) or entry.output_type)
    if _HUB_METRIC.search(str(error)) or (isinstance(error, DataNotFoundError) and _calls_hub_metric(config)):
        return Reason.HUB_METRIC, endpoint
    if isinstance(error, DataNotFoundError):
        return Reason.DATA, endpoint
    if isinstance(error, MissingDependencyError):
        return Reason.SOFTWARE, endpoint
    if isinstance(error, UnsupportedTaskError):
        if "compiles C++" in str(error):
            return Reason.OTHER_CODE, endpoint
        if config.get("unsafe_code") and not may_run_code:
            return _reason_where_code_may_run(entry, index), endpoint
        if config.get("doc_to_image") or config.get("doc_to_audio"):
            return Reason.MULTIMODAL, endpoint
    if isinstance(error, TaskConfigError) and _fails_in_lm_eval(entry, str(error)):
        return Reason.BROKEN, endpoint
    return Reason.UNEXPLAINED, endpoint


def _config(entry: TaskEntry) -> dict[str, Any]:
    """The task's configuration, by lm-eval's own loader; empty if that fails."""
    from lm_eval.tasks._factory import TaskFactory

    from assay.tasks.library import lm_eval_entry

    try:
        config: dict[str, Any] = TaskFactory(meta={})._load_full_config(lm_eval_entry(entry))
    except (Exception, SystemExit):
        return {}
    return config


def _reason_where_code_may_run(entry: TaskEntry, index: TaskIndex) -> Reason:
    from assay.tasks.library import build

    try:
        build([entry], index, {}, may_run_code=True)
    except AssayError as error:
        reason, _ = _reason(entry, error, index, may_run_code=True)
        return Reason.UNSAFE_CODE if reason is Reason.DATA else reason
    return Reason.UNSAFE_CODE


def _calls_hub_metric(config: dict[str, Any]) -> bool:
    """Whether answers are scored by calling a metric that is not lm-eval's own."""
    from lm_eval.api.registry import metric_registry

    if _output_type(config) != "generate_until" or config.get("process_results"):
        return False
    names = [(entry["metric"], entry.get("hf_evaluate")) for entry in config.get("metric_list") or ()]
    return any(isinstance(name, str) and (hub is True or name not in metric_registry) for name, hub in names)


def _output_type(config: dict[str, Any]) -> str | None:
    if "class" in config:
        return getattr(config["class"], "OUTPUT_TYPE", None)
    return config.get("output_type", "generate_until") if config else None


def _endpoint(output_type: str | None) -> str:
    if output_type == "generate_until":
        return "chat or completions"
    return "completions" if output_type in _LOGLIKELIHOOD else "unknown"


def _fails_in_lm_eval(entry: TaskEntry, message: str) -> bool:
    """Whether lm-eval's own loader raises what `message` tells."""
    from lm_eval.tasks._factory import TaskFactory

    from assay.tasks.library import lm_eval_entry

    return _fails(lambda: TaskFactory(meta={}).build(lm_eval_entry(entry), registry={}), message)


def _fails(build: Callable[[], Any], message: str) -> bool:
    try:
        build()
    except (Exception, SystemExit) as error:
        said, _, _ = describe_error(error.with_traceback(None)).rpartition(" (")
        return said in message or ("aggregation" in message and error.args == (None,))
    return False
