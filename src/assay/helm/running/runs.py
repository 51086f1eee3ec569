"""Reads a run to answer, and puts the new model's name into it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from assay.errors import FileFormatError, SpecificationError
from assay.helm.run_directory import RUN_SPEC
from assay.helm.selection import find_run

if TYPE_CHECKING:
    from pathlib import Path

    from assay.helm.adaptation import RequestState, ScenarioState
    from assay.helm.run_spec import RunSpec
    from assay.helm.scenario import Scenario

_NOT_IN_NAMES = re.compile("[/\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_LONGEST_NAME = 255


@dataclass(frozen=True)
class RunToAnswer:
    """A run to be answered; existing results are ignored."""

    run_spec: RunSpec
    scenario: Scenario | Path | None
    """The content of ``scenario.json``, or its path."""
    state: ScenarioState
    read_from: Path | None = None
    """The directory that it was read from, if any."""

    def is_stored_in(self, folder: Path) -> bool:
        """Whether the run was read from this directory, which need not exist."""
        return self.read_from is not None and folder.exists() and folder.samefile(self.read_from)

    def folder_in(self, suite: Path) -> Path:
        """The run's directory, which HELM's tools expect to have the run's name.

        Raises:
            FileFormatError: the run's name cannot be a directory's name.
        """
        name = self.run_spec.name
        if name in ("", ".", "..") or safe_name(name) != name:
            raise FileFormatError(f"the run's name {name!r} cannot be the name of a directory")
        if len(name.encode()) > _LONGEST_NAME:
            raise FileFormatError(
                f"the run's name has {len(name.encode())} bytes, and a directory's name at most {_LONGEST_NAME}: "
                f"{name:.60}…"
            )
        return suite / name


def read_run(path: Path, model: str) -> RunToAnswer:
    """Read a run directory as a run of another model.

    Args:
        path: the directory, with at least its ``run_spec.json`` and ``scenario_state.json``.
        model: the other model's name in HELM's files.

    Raises:
        FileFormatError: a file is missing or damaged.
        SpecificationError: there is no run specification.
    """
    run = find_run(path)
    if run.run_spec is None:
        raise SpecificationError(f"{run.folder} has no {RUN_SPEC}, which has the run's name and metrics")
    return with_model(RunToAnswer(run.run_spec, run.scenario, run.state.load(), run.folder), model)


def with_model(run: RunToAnswer, model: str) -> RunToAnswer:
    """The run with another model's name in all its records, and without results."""
    old = run.run_spec.adapter_spec
    adapter_spec = msgspec.structs.replace(old, model=model, **_deployment(old.model_deployment, model))
    return replace(
        run,
        run_spec=msgspec.structs.replace(
            run.run_spec, name=_name_with(run.run_spec.name, model), adapter_spec=adapter_spec
        ),
        state=msgspec.structs.replace(
            run.state,
            adapter_spec=adapter_spec,
            request_states=[_with_model(one, model) for one in run.state.request_states],
        ),
    )


def safe_name(text: str) -> str:
    """The name of a model or task without characters that a directory's name cannot have."""
    return _NOT_IN_NAMES.sub("_", text)


def helm_name(model: str, wanted: str | None = None) -> str:
    """A model's name in HELM's files, ``CREATOR/NAME``.

    Args:
        model: its name on the server or the hub, or the folder of its files.
        wanted: the name that the user wants in HELM's files.

    Raises:
        SpecificationError: HELM does not allow the wanted name.
    """
    if wanted is not None:
        creator, _, name = wanted.partition("/")
        if not creator or not name or "," in wanted or safe_name(name) != name or safe_name(creator) != creator:
            raise SpecificationError(f"{wanted!r} is not a name of HELM's form, CREATOR/NAME")
        return wanted
    parts = [part for part in model.split("/") if part]
    creator = parts[-2] if len(parts) == 2 and not model.startswith("/") else "local"
    # In descriptions and names of runs a comma ends the model's name.
    creator, name = (safe_name(part).replace(",", "_") for part in (creator, parts[-1] if parts else "model"))
    return f"{creator}/{name}"


def _name_with(name: str, model: str) -> str:
    """A run's name, ``scenario:key=value,…``, with another model."""
    scenario, colon, rest = name.partition(":")
    pairs = [pair for pair in rest.split(",") if not pair.startswith("model_deployment=")]
    others = [f"model={safe_name(model)}" if pair.startswith("model=") else pair for pair in pairs]
    return scenario + colon + ",".join(others)


def _with_model(state: RequestState, model: str) -> RequestState:
    old = state.request
    request = msgspec.structs.replace(old, model=model, **_deployment(old.model_deployment, model))
    return msgspec.structs.replace(state, request=request, result=None)


def _deployment(known: str, model: str) -> dict[str, str]:
    """The deployment's field; none for files of HELM 0.2, which had no deployments."""
    return {"model_deployment": model} if known else {}
