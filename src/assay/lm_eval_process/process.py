"""The reference engine: the real lm-eval in a child process, its output shown and kept, its results file found.

The child gets an environment of its own; this process's environment, working directory and modules stay as they are.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib.util
import json
import math
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.client.api_key import KEY_ARGUMENT, NO_KEY, refuse_unsendable
from assay.client.urls import endpoint_url
from assay.errors import FileFormatError, MissingDependencyError, SpecificationError, UnjudgeableError
from assay.lm_eval_process.environment import child_environment
from assay.lm_eval_process.log import make_log
from assay.lm_eval_process.shown_process import ending_signals_held, run_shown
from assay.tasks.gen_kwargs import settings_of
from assay.tasks.index import TaskKind, task_index
from assay.types import EndpointKind, ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.results.document import ResultsDocument

_CLIENT_PACKAGES = ("aiohttp", "requests", "tenacity", "tqdm")
"""What lm-eval's client for endpoints imports: its extra ``api``."""
_PATH_OPTIONS = ("--include_path", "--use_cache", "-c", "--config", "-C")
"""Options of lm-eval whose value is a path, which means another place once the working directory is another."""
_RESULTS_NAME = re.compile(r"results_(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d(?:\.\d+)?)\.json")
_LONGEST_LAST_LINE = 300


class LmEvalFailedError(UnjudgeableError, subprocess.CalledProcessError):
    """lm-eval ended with an error, or was killed."""

    def __init__(self, returncode: int, cmd: Sequence[str], log: str) -> None:
        subprocess.CalledProcessError.__init__(self, returncode, list(cmd))
        self.log = log
        """The file with everything that lm-eval printed."""

    def __str__(self) -> str:
        ending = f"was killed by signal {-self.returncode}" if self.returncode < 0 else f"exited with {self.returncode}"
        last = _last_line(Path(self.log))
        said = f" ({last})" if last else ""
        return f"lm-eval {ending}{said}; its whole output is in {self.log}; the command was: {shlex.join(self.cmd)}"


class NoResultsFileError(UnjudgeableError, FileNotFoundError):
    """lm-eval ended without an error, but wrote no results file for the task."""


def run_lm_eval(
    base_url: str,
    model: str,
    results_dir: str,
    task: str,
    limit: float | None = None,
    use_chat: bool = True,
    gen_kwargs: str | Mapping[str, Any] | None = "",
    max_length: int | None = None,
    fewshot_as_multiturn: bool = True,
    num_fewshot: int | None = None,
    max_concurrent: int = 1,
    timeout: float = 7200,
    extra_args: Sequence[str] | None = None,
    data_dir: str | None = None,
    api_key: str = NO_KEY,
) -> tuple[dict[str, dict[str, Any]], str]:
    """Evaluate a served model with the real lm-eval, in a child process.

    What it prints is shown on ``sys.stdout`` and kept in ``<results_dir>/<task>_lm_eval.log``. Whatever interrupts the
    call (Ctrl-C, SIGTERM, SIGHUP, an exception) ends the child with all its processes first.

    Args:
        base_url: the server's root, without ``/v1``.
        model: the name under which the server serves the model.
        results_dir: where lm-eval's result files go.
        task: lm-eval's name of a task or group; several may be joined by commas.
        limit: documents a task: a count if >= 1, a fraction if < 1, all if None.
        use_chat: ask ``/v1/chat/completions``, with the chat template applied; else ``/v1/completions``.
        gen_kwargs: generation settings, ``key=value,key=value`` or by name.
        max_length: the model's context length in tokens; lm-eval's own if None.
        fewshot_as_multiturn: few-shot examples are turns of their own; only on the chat endpoint.
        num_fewshot: few-shot examples; the task's own number if None.
        max_concurrent: requests outstanding at once.
        timeout: seconds for one attempt at a request.
        extra_args: more arguments for lm-eval's command line.
        data_dir: data sets on disk: ``DIR/<owner>/<name>``, or a Hugging Face datasets cache.
        api_key: sent to the server; the caller's own ``OPENAI_API_KEY`` is not.

    Returns:
        lm-eval's ``results`` section, task -> metric key -> value; and the results file.

    Raises:
        UsageError: a value is out of range, `data_dir` is no folder, or a package is missing.
        LmEvalFailedError: lm-eval failed. It is a ``subprocess.CalledProcessError``, too.
        NoResultsFileError: lm-eval wrote no results file for the task. It is a ``FileNotFoundError``, too.
    """
    run = _Run(
        base_url=base_url,
        model=model,
        results_dir=Path(results_dir).absolute(),
        task=task,
        limit=limit,
        endpoint="chat" if use_chat else "completions",
        gen_kwargs=gen_kwargs,
        max_length=max_length,
        fewshot_as_multiturn=fewshot_as_multiturn,
        num_fewshot=num_fewshot,
        max_concurrent=max_concurrent,
        timeout=timeout,
        extra_args=tuple(extra_args or ()),
    )
    run.check()
    refuse_unsendable(api_key.strip(), KEY_ARGUMENT)
    _require_client_packages()
    log = make_log(run.results_dir, task)
    earlier = _results_files(run.results_dir)
    with (
        ending_signals_held() as held,
        child_environment(run.base_url, task, data_dir, api_key) as (environment, folder),
    ):
        command = run.command(folder)
        status = run_shown(command, environment, folder, log, held)
    if status != 0:
        raise LmEvalFailedError(status, command, str(log))
    new = [path for path in _results_files(run.results_dir) if path not in earlier]
    return _results_of(run, new, log)


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What lm-eval is asked to do; see :func:`run_lm_eval`."""

    base_url: str
    model: str
    results_dir: Path
    task: str
    limit: float | None
    endpoint: EndpointKind
    gen_kwargs: str | Mapping[str, Any] | None
    max_length: int | None
    fewshot_as_multiturn: bool
    num_fewshot: int | None
    max_concurrent: int
    timeout: float
    extra_args: tuple[str, ...]

    def check(self) -> None:
        """Refuse what Assay's own engine would refuse, and what lm-eval's ``key=value`` syntax cannot express."""
        from assay.specification import validate

        model = ModelSpec(
            base_url=self.base_url,
            model=self.model,
            endpoint=self.endpoint,
            concurrency=self.max_concurrent,
            request_timeout=self.timeout,
            max_length=self.max_length,
        )
        # lm-eval itself reads settings that are text, in its own process.
        settings = {} if isinstance(self.gen_kwargs, str) else settings_of(self.gen_kwargs)
        options = TaskOptions(limit=self.limit, num_fewshot=self.num_fewshot, gen_kwargs=settings)
        validate(Specification(tasks=tuple(filter(None, self.task.split(","))), model=model, options=options))
        for name, value in (("model", self.model), ("base URL", self.url)):
            if "," in value:
                raise SpecificationError(f"the {name} {value!r} has a comma, which lm-eval takes for a separator")

    @property
    def url(self) -> str:
        return endpoint_url(self.base_url, self.endpoint)

    def command(self, folder: Path) -> list[str]:
        """The command line, to be run in `folder`."""
        model_args: dict[str, Any] = {
            "model": self.model,
            "base_url": self.url,
            "tokenized_requests": False,
            "tokenizer_backend": None,
            "num_concurrent": self.max_concurrent,
            # lm-eval cuts it to whole seconds, and 0 means for ever.
            "timeout": math.ceil(self.timeout),
        }
        if self.max_length is not None:
            model_args["max_length"] = self.max_length
        command = [sys.executable, "-m", "lm_eval"]
        command += ["--model", "local-chat-completions" if self.endpoint == "chat" else "local-completions"]
        command += ["--tasks", self.task]
        command += ["--model_args", ",".join(f"{key}={value}" for key, value in model_args.items())]
        command += ["--log_samples", "--output_path", str(self.results_dir)]
        if self.limit is not None:
            command += ["--limit", str(self.limit)]
        if self.endpoint == "chat":
            # --apply_chat_template alone would turn --fewshot_as_multiturn on.
            turns = [] if self.fewshot_as_multiturn else ["false"]
            command += ["--apply_chat_template", "--fewshot_as_multiturn", *turns]
        if self.num_fewshot is not None:
            command += ["--num_fewshot", str(self.num_fewshot)]
        if self.gen_kwargs:
            given = self.gen_kwargs
            command += ["--gen_kwargs", given if isinstance(given, str) else json.dumps(dict(given))]
        return [*command, *(self.extra_args if folder == Path.cwd() else _with_absolute_paths(self.extra_args))]


def _with_absolute_paths(arguments: Sequence[str]) -> Iterator[str]:
    before = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if before in _PATH_OPTIONS:
            yield os.path.abspath(argument)
        elif equals and option in _PATH_OPTIONS:
            yield f"{option}={os.path.abspath(value)}"
        else:
            yield argument
        before = argument


def _require_client_packages() -> None:
    if missing := [package for package in _CLIENT_PACKAGES if importlib.util.find_spec(package) is None]:
        raise MissingDependencyError(
            f'lm-eval\'s client needs the package {", ".join(missing)}: pip install "assay[lm-eval]"'
        )


# -- what it wrote ----------------------------------------------------------------------------------------------------


def _results_files(folder: Path) -> list[Path]:
    """The results files below a folder, newest first by the time in their names."""
    dated = [
        (datetime.fromisoformat(f"{name[1]}T{name[2]}:{name[3]}:{name[4]}"), path)
        for path in folder.rglob("results_*.json")
        if (name := _RESULTS_NAME.fullmatch(path.name))
    ]
    return [path for _, path in sorted(dated, reverse=True)]


def _results_of(run: _Run, files: Sequence[Path], log: Path) -> tuple[dict[str, dict[str, Any]], str]:
    """The results section of the first of `files` that this run wrote, and that file."""
    from assay.results.reading import read_results

    for file in files:
        with contextlib.suppress(FileFormatError):
            document = read_results(file)
            if _belongs_to(run, document):
                return document.results, str(file)
    others = f"; {files[0]} is of another run" if files else ""
    raise NoResultsFileError(
        f"lm-eval wrote no results file for '{run.task}' below {run.results_dir}{others}; its output is in {log}"
    )


def _belongs_to(run: _Run, document: ResultsDocument) -> bool:
    """Whether a results document holds the run's tasks, of its model; another run may write to the same folder."""
    names = [*document.results, *document.group_subtasks]
    if not all(any(fnmatch.filter(names, pattern) for pattern in _patterns(name)) for name in run.task.split(",")):
        return False
    asked = None if document.config is None else document.config.model_args
    if not isinstance(asked, dict) or {"--model_args", "-a"} & set(run.extra_args):
        return True
    return (str(asked.get("model")), str(asked.get("base_url"))) == (run.model, run.url)


def _patterns(name: str) -> Sequence[str]:
    """What the results of a task, group, tag, pattern or YAML file are called."""
    entry = task_index().entries.get(name)
    if entry is not None:
        return entry.tags if entry.kind is TaskKind.TAG else (name,)
    return ("*",) if os.path.exists(name) else (name, name.strip())


def _last_line(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = re.split(r"[\r\n]+", file.read().decode("utf-8", "replace"))
    except OSError:
        return ""
    shown = ["".join(filter(str.isprintable, line)).strip() for line in lines]
    return next((line for line in reversed(shown) if line), "")[:_LONGEST_LAST_LINE]
