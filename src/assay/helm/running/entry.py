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
        interpreter = python or sys.executable
        _build(interpreter, order)
        run_spec, scenario, state = (Path(folder) / name for name in (RUN_SPEC, SCENARIO, SCENARIO_STATE))
        if not state.is_file():  # the last to be written
            raise SpecificationError(f"the interpreter {interpreter} did not build the run {entry.description!r}")
        return RunToAnswer(
            read_run_spec(run_spec), Scenario.from_json(scenario.read_bytes(), SCENARIO), StateFile(state).load()
        )


def _build(python: str, order: dict[str, object]) -> None:
    # -P: a module of the working directory, or beside the builder, must not be imported in place of HELM's.
    command = [python, "-P", str(_BUILDER)]
    try:
        child = subprocess.run(  # noqa: S603 - the interpreter is the user's own
            command, input=json.dumps(order), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise SpecificationError(f"the interpreter {python} cannot be run: {error.strerror}") from None
    if child.returncode == 0:
        return
    parsed = child.stderr.strip().splitlines() or [f"it ended with code {child.returncode}"]
    raise SpecificationError(f"HELM cannot build the run {order['description']!r}: {parsed[-1]}")
