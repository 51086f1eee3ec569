"""A run that HELM itself builds from its description: run specification, scenario and prompts.

HELM is asked in a process of its own. crfm-helm and lm-eval's current libraries exclude each other's versions of
``datasets``, so it usually lives in an environment of its own, too.
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
    """What HELM is to build."""

    description: str
    """As helm-run takes it, for example ``mmlu:subject=anatomy``."""
    model: str
    """What the model is called in HELM's files, unless the description names one."""
    is_named: bool = False
    """Whether `model` holds even if the description names one."""
    tokenizer: str | None = None
    """The model's Hugging Face tokenizer, by which prompts are made to fit."""
    window: int | None = None
    """The model's context length in tokens; by default what its tokenizer says."""
    max_eval_instances: int | None = None
    num_train_trials: int | None = None
    """How often every instance is asked, each time with other examples; HELM takes one trial where there are none."""
    plugins: tuple[str, ...] = ()
    """Modules that register run specifications of the user's own."""


def build_run(entry: Entry, output_dir: Path, python: str | None = None) -> RunToAnswer:
    """Have HELM build a run.

    Args:
        entry: what.
        output_dir: HELM's output path, where it looks for the scenario's data before it fetches them.
        python: an interpreter that has crfm-helm; by default this one.

    Raises:
        MissingDependencyError: crfm-helm is not installed there.
        SpecificationError: HELM cannot build it; the message is HELM's.
    """
    if python is None and importlib.util.find_spec("helm") is None:
        raise MissingDependencyError(
            f"{entry.description!r} is no run directory, and to build a run of that description HELM itself is "
            "needed: pip install crfm-helm into an environment of its own and name its interpreter (--helm-python)"
        )
    with tempfile.TemporaryDirectory(prefix="assay-helm-") as folder:
        order = {**msgspec.to_builtins(entry), "folder": folder, "output_dir": str(output_dir)}
        run_spec, scenario, state = (Path(folder) / name for name in (RUN_SPEC, SCENARIO, SCENARIO_STATE))
        said = _build(python or sys.executable, order)
        if not state.is_file():  # the last to be written
            raise SpecificationError(_ended_early(entry, python or sys.executable, said))
        return RunToAnswer(
            read_run_spec(run_spec), Scenario.from_json(scenario.read_bytes(), SCENARIO), StateFile(state).load()
        )


def _ended_early(entry: Entry, python: str, said: str) -> str:
    """Why there is no run although nothing failed: a module may end the process with no exception to be caught."""
    cause = f"is {python} a Python interpreter?"
    if entry.plugins:
        cause = f"a plugin may end the process when it is imported ({', '.join(entry.plugins)})"
    words = f", with the last words {said!r}" if said else ""
    return f"HELM did not build the run {entry.description!r}: its process ended without an error{words}; {cause}"


def _build(python: str, order: dict[str, object]) -> str:
    """Have HELM build a run; gives the last line that it said on the way.

    Raises:
        SpecificationError: It cannot; the message is its own.
    """
    # -P: a module of the working directory, or beside the builder, must not be imported in place of HELM's.
    command = [python, "-P", str(_BUILDER)]
    try:
        child = subprocess.run(  # noqa: S603 - the interpreter is the user's own
            command, input=json.dumps(order), capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as error:
        raise SpecificationError(f"the interpreter {python} cannot be run: {error.strerror}") from None
    said = child.stderr.strip().splitlines() or child.stdout.strip().splitlines()
    if child.returncode == 0:
        return said[-1] if said else ""
    last = said[-1] if said else f"it ended with code {child.returncode}"
    raise SpecificationError(f"HELM cannot build the run {order['description']!r}: {last}")
