"""lm-eval's result files, written and read: ``results_<time>.json`` and ``samples_<task>_<time>.jsonl``.

Same folders, names, keys and values as lm-eval's own; what Assay adds lies under the one key ``assay``.
"""

from __future__ import annotations

import io
import json
import os
import platform
import signal
import threading
import time
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.paths import keep_working_directory
from assay._util.storage import unwritten
from assay._util.text import printable
from assay.errors import FileFormatError, OutputError, SpecificationError, TaskConfigError
from assay.results.groups import leaves
from assay.results.sample_files import may_name_file
from assay.results.shape import refuse_misshapen
from assay.tasks.lm_eval_json import as_written, lm_eval_json
from assay.tasks.model_args import lm_eval_model_name
from assay.tasks.raised import words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from assay.scoring.task_scores import TaskScores
    from assay.tasks.library import LoadedTasks
    from assay.tasks.tokenizer import Tokenizer
    from assay.types import Specification, StoppedEarly

_BLOCK = 2**20
"""Bytes that are written at once."""
_LONGEST_NAME = 255
"""Bytes, on the usual file systems."""
_BOOTSTRAP_ITERATIONS = 100_000
"""lm-eval's default, used where it has no formula for a metric's standard error."""


def model_folder(output_dir: str | Path, model: str) -> Path:
    """The folder of one model's results, named as lm-eval names it.

    Raises:
        SpecificationError: no folder can have that name.
    """
    from lm_eval.utils import sanitize_model_name

    name = str(sanitize_model_name(model))
    if not _may_name_folder(name):
        raise SpecificationError(f"no folder can be named after the model '{printable(model)}'")
    return Path(output_dir) / name


def _may_name_folder(name: str) -> bool:
    try:
        return name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) <= _LONGEST_NAME
    except UnicodeEncodeError:
        return False


@keep_working_directory()
def aggregate(tasks: Mapping[str, TaskScores], loaded: LoadedTasks) -> dict[str, Any]:
    """The sections that lm-eval computes from samples: results, groups, versions, n-shot, n-samples and so on.

    Raises:
        TaskConfigError: a task's own aggregation fails, or a group's.
    """
    from lm_eval.evaluator_utils import EvalAcc, _collect_results, aggregate_groups

    aggregated = EvalAcc(groups=loaded.groups)
    # lm-eval's bootstrap prints, and its child processes write tracebacks when they are ended.
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), _ended_by_sigterm():
        for name, scores in tasks.items():
            scores.fail_what_cannot_be_aggregated()
            collected = {"task": scores.task, "raw_metrics": scores.raw_metrics(), "logged_samples": []}
            with _blamed_on(f"task {name!r}"):
                of_task = _collect_results({name: collected}, None, _BOOTSTRAP_ITERATIONS)
            for section in ("metrics", "configs", "versions", "num_fewshot", "higher_is_better", "n_samples"):
                getattr(aggregated, section).update(getattr(of_task, section))
        with _blamed_on(f"group {', '.join(map(repr, loaded.groups))}"):
            aggregate_groups(aggregated)
            sections = aggregated._to_eval_results()
    written: dict[str, Any] = as_written(sections)
    return written


@contextmanager
def _blamed_on(what: str) -> Iterator[None]:
    try:
        yield
    except (Exception, SystemExit) as error:
        raise TaskConfigError(
            f"{what}: the scores cannot be aggregated: {words_of(error)}; the answers are kept, and the same command "
            "goes on from here once that is mended"
        ) from error


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end this process and its children at once, whatever handler there is.

    The pool of lm-eval's bootstrap ends its processes by SIGTERM and waits for them. Python runs a handler only between
    two instructions of its own: one that a child inherits may never run, because the child waits in a system call.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def describe_run(specification: Specification, model_args: Mapping[str, Any], started: float) -> dict[str, Any]:
    """The sections in which lm-eval says how the run was made.

    Args:
        specification: what was run.
        model_args: with which lm-eval would ask in the same way.
        started: Unix time at which the run began.
    """
    options = specification.options
    return {
        "config": {
            "model": lm_eval_model_name(specification.model),
            "model_args": model_args,
            "batch_size": 1,
            "batch_sizes": [],
            "device": "cuda:0",
            "use_cache": None,
            "limit": options.limit,
            "bootstrap_iters": _BOOTSTRAP_ITERATIONS,
            "gen_kwargs": options.gen_kwargs,
            "random_seed": options.random_seed,
            "numpy_seed": options.numpy_seed,
            "torch_seed": options.torch_seed,
            "fewshot_seed": options.fewshot_seed,
        },
        "git_hash": None,
        "date": started,
        "pretty_env_info": f"Python {platform.python_version()}, {platform.platform()}",
        "transformers_version": _version("transformers"),
        "lm_eval_version": _version("lm_eval"),
        "upper_git_hash": None,
    }


def describe_tokenizer(tokenizer: Tokenizer | None, max_length: int | None) -> dict[str, Any]:
    """The sections in which lm-eval describes the tokenizer on its side; none without one."""
    from assay.tasks.encoding import PromptEncoder

    if tokenizer is None:
        return {}
    return {
        "tokenizer_pad_token": [tokenizer.pad_token, str(tokenizer.pad_token_id)],
        "tokenizer_eos_token": [tokenizer.eos_token, str(tokenizer.eos_token_id)],
        "tokenizer_bos_token": [tokenizer.bos_token, str(tokenizer.bos_token_id)],
        "eot_token_id": tokenizer.eos_token_id,
        "max_length": PromptEncoder(tokenizer, max_length).longest,
    }


def describe_prompting(specification: Specification, tokenizer: Tokenizer | None, seconds: float) -> dict[str, Any]:
    """The sections that lm-eval puts last: model, system instruction, chat template and total time."""
    from lm_eval.utils import hash_string, sanitize_model_name

    model, options = specification.model, specification.options
    system = options.system_instruction
    is_chat = model.endpoint == "chat" or options.apply_chat_template
    template = "" if model.endpoint == "chat" else None
    if is_chat and tokenizer is not None:
        template = tokenizer.chat_template.text
    return {
        "model_source": lm_eval_model_name(model),
        "model_name": model.model,
        "model_name_sanitized": sanitize_model_name(model.model),
        "system_instruction": system,
        "system_instruction_sha": hash_string(system) if system else None,
        "fewshot_as_multiturn": options.fewshot_as_multiturn if is_chat else None,
        "chat_template": template,
        "chat_template_sha": hash_string(template) if template else None,
        "total_evaluation_time_seconds": str(seconds),
    }


def mark_stopped_early(results: dict[str, Any], stopped: StoppedEarly) -> None:
    """Make sure that nobody takes a part of a run for all of it: in Assay's section, and in every name that is shown.

    lm-eval's own ``n-samples`` says it too: fewer ``effective`` samples than ``original`` ones.
    """
    results["assay"]["early_stopping"] = msgspec.to_builtins(stopped)
    for section in ("results", "groups"):
        for name, entry in results.get(section, {}).items():
            tasks = [task for task in leaves(name, results.get("group_subtasks", {})) if task in stopped.tasks]
            members = [stopped.tasks[task] for task in tasks]
            counted, of = (sum(part) for part in zip(*members, strict=True)) if members else (0, 0)
            if counted < of:
                entry["alias"] = f"{entry.get('alias', name)} (stopped early: {counted} of {of})"


def write_results(folder: Path, date_id: str, results: Mapping[str, Any], tasks: Mapping[str, TaskScores]) -> Path:
    """Write the samples files, then the results file; each appears under its name only when it is whole.

    Args:
        folder: the model's folder.
        date_id: the time in the files' names, as lm-eval writes it.
        results: the whole results document.
        tasks: the samples to write, by task.

    Returns:
        The results file.

    Raises:
        OutputError: a file cannot be written.
    """
    for name, scores in tasks.items():
        _write_whole(folder / f"samples_{name}_{date_id}.jsonl", scores.sample_lines())
    return write_document(folder / f"results_{date_id}.json", results)


def write_document(file: Path, results: Mapping[str, Any]) -> Path:
    """Write a results file, or write it anew.

    Raises:
        OutputError: it cannot be written.
    """
    return _write_whole(file, [lm_eval_json(results, indent=2).encode("utf-8", "backslashreplace")])


def refuse_unwritable(tasks: Iterable[str]) -> None:
    """Refuse tasks whose names cannot be part of a file's name, before any request.

    Raises:
        TaskConfigError: names the task.
    """
    for name in tasks:
        if not may_name_file(name):
            raise TaskConfigError(
                f"task {name!r} cannot have a samples file: its name is no file name; --no-log-samples (log_samples = "
                "false) writes none"
            )


def read_results(path: str | Path) -> dict[str, Any]:
    """Read a results file, Assay's or lm-eval's.

    Raises:
        FileFormatError: the file is missing, damaged or no results file.
    """
    try:
        document = json.loads(Path(path).read_bytes())
    except FileNotFoundError:
        raise FileFormatError(f"there is no results file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(f"cannot read {path} as a results file: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("results"), dict):
        raise FileFormatError(f"{path} is no results file: it has no section 'results'")
    refuse_misshapen(document, path)
    return document


def date_id(moment: float | None = None) -> str:
    """A time as lm-eval writes it into file names: local ISO time with microseconds, colons made dashes."""
    from datetime import datetime

    local = datetime.fromtimestamp(time.time() if moment is None else moment).astimezone().replace(tzinfo=None)
    return local.isoformat(timespec="microseconds").replace(":", "-")


def _write_whole(path: Path, chunks: Iterable[bytes]) -> Path:
    beside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)  # it may have been removed while the run went on
        with _removed_unless_whole(beside), beside.open("wb", buffering=_BLOCK) as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise unwritten(f"cannot write {path}", error, "the run's answers are kept in its journal") from error
    return path


@contextmanager
def _removed_unless_whole(file: Path) -> Iterator[None]:
    """Where the disk is full, what did fit is of no use."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            file.unlink()
        raise


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "N/A"


def ensure_writable(folder: Path) -> None:
    """Make a folder for results, if it is not there.

    Raises:
        OutputError: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritten(f"cannot create the output directory {folder}", error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"the output directory {folder} is not writable")
