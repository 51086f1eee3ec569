"""Has HELM build a run from its description: run specification, scenario and prompts.

HELM runs in a separate process. crfm-helm and lm-eval need different versions of ``datasets``, so it usually has an
environment of its own, too.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from assay.errors import MissingDependencyError, SpecificationError
from assay.helm.run_directory import RUN_SPEC, SCENARIO, SCENARIO_STATE, read_run_spec
from assay.helm.running.runs import RunToAnswer
from assay.helm.scenario import Scenario
from assay.helm.state_file import StateFile

_BUILDER = Path(__file__).with_name("entry_builder.py")


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A description of a run, with the settings that HELM needs to build it."""

    description: str
    """As for helm-run, for example ``mmlu:subject=anatomy``."""
    model: str
    """The model's name in HELM's files, unless the description names a model."""
    is_named: bool = False
    """Use `model` even if the description names one."""
    tokenizer: str | None = None
    """The model's Hugging Face tokenizer, with which HELM cuts prompts to the context length."""
    max_length: int | None = None
    """The model's context length in tokens; by default as its tokenizer says."""
    max_eval_instances: int | None = None
    num_train_trials: int | None = None
    """Number of trials, each with different few-shot examples; HELM makes one trial where a run has no examples."""
    plugins: tuple[str, ...] = ()
    """Modules that register run specifications."""


def build_run(entry: Entry, output_dir: Path, python: str | None = None) -> RunToAnswer:
    """Have HELM build a run.

    Args:
        entry: the run.
        output_dir: HELM's output path; HELM fetches the scenario's data only if they are not there.
        python: a Python interpreter that has crfm-helm; by default this one.

    Raises:
        MissingDependencyError: crfm-helm is not installed there.
        SpecificationError: HELM cannot build the run; the message is HELM's.
    """
    if python is None and importlib.util.find_spec("helm") is None:
        raise MissingDependencyError(
            f"{entry.description!r} is not a run directory, and only HELM can build a run from a description: "
            "pip install crfm-helm into an environment of its own and name its interpreter (--helm-python)"
        )
    with tempfile.TemporaryDirectory(prefix="assay-helm-") as folder:
        job = {**msgspec.to_builtins(entry), "folder": folder, "output_dir": str(output_dir)}
        run_spec, scenario, state = (Path(folder) / name for name in (RUN_SPEC, SCENARIO, SCENARIO_STATE))
        last_line = _build(python or sys.executable, job)
        if not state.is_file():  # the last to be written
            raise SpecificationError(_ended_without_a_run(entry, python or sys.executable, last_line))
        return RunToAnswer(
            read_run_spec(run_spec), Scenario.from_json(scenario.read_bytes(), SCENARIO), StateFile(state).load()
        )


def _ended_without_a_run(entry: Entry, python: str, last_line: str) -> str:
    """The message for a process that built no run but reported no error: a module may have ended it."""
    cause = f"is {python} a Python interpreter?"
    if entry.plugins:
        cause = f"a plugin may end the process when it is imported ({', '.join(entry.plugins)})"
    output = f"; its last output is {last_line!r}" if last_line else ""
    return f"HELM did not build the run {entry.description!r}: its process ended without an error{output}; {cause}"


def _build(python: str, job: dict[str, object]) -> str:
    """Have HELM build a run, and return the last line of its output.

    Raises:
        SpecificationError: HELM cannot build the run; the message is HELM's.
    """
    # -P: a module of the working directory, or beside the builder, must not shadow one of HELM's.
    command = [python, "-P", str(_BUILDER)]
    try:
        child = subprocess.run(  # noqa: S603 - the interpreter is the user's own
            command, input=json.dumps(job), capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as error:
        raise SpecificationError(f"the interpreter {python} cannot be run: {error.strerror}") from None
    lines = child.stderr.strip().splitlines() or child.stdout.strip().splitlines()
    if child.returncode == 0:
        return lines[-1] if lines else ""
    last = lines[-1] if lines else f"it ended with code {child.returncode}"
    raise SpecificationError(f"HELM cannot build the run {job['description']!r}: {last}")
