"""Loads tasks exactly as lm-eval's ``simple_evaluate`` does before it builds requests."""

from __future__ import annotations

import contextlib
import glob
import io
import logging
import os
import random
import sys
import warnings
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.paths import keep_working_directory
from assay.errors import SpecificationError, TaskConfigError
from assay.tasks.code_eval import runs_code
from assay.tasks.data import data_source
from assay.tasks.index import TaskEntry, TaskIndex, TaskKind, entry_from_file, task_index
from assay.tasks.patches.download import using_kept_rows
from assay.tasks.patches.punctuation import cache_punctuation
from assay.tasks.patches.templates import cache_compiled_templates
from assay.tasks.repeats import ask_repeatedly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.tasks.data import DataSource
    from assay.tasks.file_hashes import DataFile
    from assay.tasks.protocol import Task
    from assay.types import TaskOptions

_log = logging.getLogger(__name__)

DATA_DIR_VARIABLE = "ASSAY_DATA_DIR"
"""Environment variable that names the folder with data sets, where the options do not."""


class LoadedTasks(msgspec.Struct, frozen=True):
    """Tasks ready to build requests and to score."""

    tasks: dict[str, Task]
    """lm-eval's Task objects by name, in lm-eval's order."""
    groups: dict[str, Any]
    """lm-eval's Group objects by name; each holds its tasks and groups."""
    data_files: dict[str, tuple[DataFile, ...]]
    """By data set, the files that the documents were read from."""


@keep_working_directory()
def load_tasks(names: Sequence[str], options: TaskOptions, metadata: dict[str, Any]) -> LoadedTasks:
    """Load tasks, groups and tags with their data, and apply the options to them.

    Args:
        names: Names, shell patterns of names, or paths of YAML files.
        options: How documents become requests.
        metadata: What lm-eval writes into every task's ``metadata`` beside that of the options: the model's arguments.

    Raises:
        UnknownTaskError: A name stands for nothing.
        SpecificationError: A task is asked for twice, or the folder of an option does not exist.
        TaskConfigError: A task's YAML or Python is broken.
        MissingDependencyError: A task needs a package that is not installed.
        UnsupportedTaskError: A task needs images, or runs code that the model writes and the options do not allow it.
        SandboxError: That code cannot be run on this machine.
        DataNotFoundError: A task's data set, or a split of it, cannot be found.
        FileFormatError: A data file is damaged.
    """
    index = task_index(options.include_path)
    entries = find_entries(names, index)
    with loading(options.data_dir or os.environ.get(DATA_DIR_VARIABLE)) as source:
        _seed(options)
        tasks, groups = build(entries, index, metadata | options.metadata, may_run_code=options.confirm_run_unsafe_code)
    for task in tasks.values():
        _apply_options(task, options)
    return LoadedTasks(tasks, groups, dict(source.files))


def find_entries(names: Sequence[str], index: TaskIndex) -> list[TaskEntry]:
    """Return what `names` stand for, each once, in the order asked for; a pattern's matches are sorted.

    Raises:
        UnknownTaskError: A name stands for nothing.
        TaskConfigError: A YAML file named by its path is malformed.
    """
    found = {
        entry.path if entry.kind is not TaskKind.TAG else entry.name: entry for n in names for entry in _find(n, index)
    }
    return list(found.values())


def _find(name: str, index: TaskIndex) -> list[TaskEntry]:
    if name in index.entries:
        return [index.entries[name]]
    if matches := index.match(name):
        return [index.entries[match] for match in matches]
    if Path(name).is_dir():
        files = sorted(glob.glob(str(Path(glob.escape(name)) / "*.yaml")))
    else:
        files = [name] if Path(name).is_file() else sorted(glob.glob(name)) if name.endswith(".yaml") else []
    if files:
        return [entry_from_file(file) for file in files]
    if glob.has_magic(name):
        raise index.unmatched(name)
    return [index.entry(name)]


@contextlib.contextmanager
def loading(data_dir: str | None) -> Iterator[DataSource]:
    """Build tasks in this block: their output is kept off the terminal, and data comes from `data_dir` first.

    Raises:
        SpecificationError: `data_dir` is no folder.
    """
    with _quiet(), data_source(data_dir) as source, using_kept_rows(source):
        yield source


def build(
    entries: Sequence[TaskEntry], index: TaskIndex, metadata: dict[str, Any], *, may_run_code: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build lm-eval's Task and Group objects of `entries`, by name; see :func:`load_tasks` for what it raises."""
    from lm_eval.tasks import TaskManager

    from assay.tasks.patches.factory import Factory, refuse_unsupported
    from assay.tasks.patches.hub_metrics import refuse_missing_metrics

    cache_compiled_templates()
    cache_punctuation()
    registry = Registry(index)
    factory = Factory(meta=metadata, may_run_code=may_run_code)
    built: list[Any] = []
    for entry in entries:
        item = factory.build(lm_eval_entry(entry), registry=registry)
        built += item if isinstance(item, list) else [item]
    try:
        loaded = TaskManager(include_defaults=False).load(built)
    except ValueError as error:
        raise SpecificationError(_requested_twice(built) or str(error)) from None
    if not loaded["tasks"]:
        raise TaskConfigError(f"there are no tasks in {', '.join(entry.name for entry in entries)}")
    for name, task in loaded["tasks"].items():
        refuse_missing_metrics(name, task)
        refuse_unsupported(name, runs_code(task) and not may_run_code, getattr(task, "MULTIMODAL", False))
    return loaded["tasks"], loaded["groups"]


def _requested_twice(built: Sequence[Any]) -> str | None:
    """The error's message, where something is asked for by itself and as a member of a group; else None."""
    members = {
        member: group.name
        for group in built
        if hasattr(group, "get_all_tasks")
        for member in [
            *(task.task_name for task in group.get_all_tasks()),
            *(sub.name for sub in group.get_all_groups()),
        ]
    }
    names = [item.name if hasattr(item, "get_all_tasks") else item.task_name for item in built]
    twice = next((name for name in names if name in members), None)
    if twice is None:
        return None
    return (
        f"'{twice}' is a member of the group '{members[twice]}' and asked for twice: ask for the group alone "
        f'(in a policy: tasks = ["{members[twice]}"]); checks may look at both'
    )


class Registry(dict[str, Any]):
    """The index as the dictionary that lm-eval's factory reads and adds to; entries are made on demand."""

    def __init__(self, index: TaskIndex) -> None:
        super().__init__()
        self._index = index

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._index.entries

    def __missing__(self, name: str) -> Any:
        entry = self[name] = lm_eval_entry(self._index.entries[name])
        return entry


def lm_eval_entry(entry: TaskEntry) -> Any:
    """`entry` as lm-eval's own index holds it."""
    from lm_eval.tasks._index import Entry
    from lm_eval.tasks._index import Kind as TheirKind

    kinds = {
        TaskKind.TASK: TheirKind.TASK,
        TaskKind.PYTHON_TASK: TheirKind.PY_TASK,
        TaskKind.GROUP: TheirKind.GROUP,
        TaskKind.TAG: TheirKind.TAG,
    }
    return Entry(entry.name, kinds[entry.kind], Path(entry.path) if entry.path else None, tags=set(entry.tags))


def _seed(options: TaskOptions) -> None:
    """Seed the generators that some tasks' document preparation draws from."""
    import numpy as np

    random.seed(options.random_seed)
    np.random.seed(options.numpy_seed)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(options.torch_seed)


def _apply_options(task: Task, options: TaskOptions) -> None:
    if options.gen_kwargs and task.get_config("output_type") == "generate_until":
        task.set_config(key="generation_kwargs", value=deepcopy(options.gen_kwargs), update=True)
    ask_repeatedly(task, options)
    own_shots = task.get_config("num_fewshot")
    if options.num_fewshot is None:
        if own_shots is None:
            task.set_config(key="num_fewshot", value=0)
    elif own_shots != 0:
        # A task that says 0 itself is meant to be asked without examples, and stays so.
        task.set_config(key="num_fewshot", value=options.num_fewshot)
    if options.predict_only:
        task.override_metric(metric_name="bypass")
    task.set_fewshot_seed(seed=options.fewshot_seed)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what lm-eval and the tasks' Python print and warn off the terminal; logging gets it."""
    for name in ("lm_eval", "lm-eval"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            logger.addHandler(logging.NullHandler())
    printed = io.StringIO()
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        if printed.getvalue():
            _log.debug("printed while loading tasks: %s", printed.getvalue())
