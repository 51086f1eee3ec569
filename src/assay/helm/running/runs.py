"""The run that is to be answered: an earlier one's directory, its requests taken as they are."""

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
    """A run without results, or with results that do not count."""

    run_spec: RunSpec
    scenario: Scenario | Path | None
    """What ``scenario.json`` says, or where it is."""
    state: ScenarioState
    read_from: Path | None = None
    """The directory that it was read from, if it was."""

    def is_in(self, folder: Path) -> bool:
        """Whether this is the run that a directory holds, which may not exist."""
        return self.read_from is not None and folder.exists() and folder.samefile(self.read_from)

    def folder_in(self, suite: Path) -> Path:
        """The run's directory: HELM's tools look for one with the run's name.

        Raises:
            FileFormatError: the name is none for a directory.
        """
        name = self.run_spec.name
        if name in ("", ".", "..") or as_in_names(name) != name:
            raise FileFormatError(f"the run is called {name!r}, for which there can be no directory")
        if len(name.encode()) > _LONGEST_NAME:
            raise FileFormatError(
                f"the run's name has {len(name.encode())} bytes, and no directory's has more than {_LONGEST_NAME}: "
                f"{name:.60}…"
            )
        return suite / name


def read_run(path: Path, model: str) -> RunToAnswer:
    """A run directory, as a run of another model.

    Args:
        path: the directory, with at least its ``run_spec.json`` and ``scenario_state.json``.
        model: what the model is called in HELM's files.

    Raises:
        FileFormatError: a file is missing or damaged.
        SpecificationError: there is no run specification.
    """
    run = find_run(path)
    if run.run_spec is None:
        raise SpecificationError(
            f"{run.folder} has no {RUN_SPEC}, which says what the run is called and how it is scored"
        )
    return renamed(RunToAnswer(run.run_spec, run.scenario, run.state.load(), run.folder), model)


def renamed(run: RunToAnswer, model: str) -> RunToAnswer:
    """The run with another model's name wherever HELM writes it."""
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
            request_states=[_renamed(one, model) for one in run.state.request_states],
        ),
    )


def as_in_names(text: str) -> str:
    """A model's or task's name as it stands in the names of runs, which are names of directories, shown on a line."""
    return _NOT_IN_NAMES.sub("_", text)


def helm_name(model: str, wanted: str | None = None) -> str:
    """What a model is called in HELM's files, where every name has a creator.

    Args:
        model: its name elsewhere, or the folder of its files.
        wanted: what it is to be called.

    Raises:
        SpecificationError: HELM could not have a model of that name.
    """
    if wanted is not None:
        creator, _, name = wanted.partition("/")
        if not creator or not name or "," in wanted or as_in_names(name) != name or as_in_names(creator) != creator:
            raise SpecificationError(f"HELM has no names like {wanted!r}; its models are called CREATOR/NAME")
        return wanted
    parts = [part for part in model.split("/") if part]
    creator = parts[-2] if len(parts) == 2 and not model.startswith("/") else "local"
    # A comma would end the name in descriptions and in names of runs.
    creator, name = (as_in_names(part).replace(",", "_") for part in (creator, parts[-1] if parts else "model"))
    return f"{creator}/{name}"


def _name_with(name: str, model: str) -> str:
    """A run's name, ``scenario:key=value,…``, with another model in it."""
    scenario, colon, rest = name.partition(":")
    pairs = [pair for pair in rest.split(",") if not pair.startswith("model_deployment=")]
    others = [f"model={as_in_names(model)}" if pair.startswith("model=") else pair for pair in pairs]
    return scenario + colon + ",".join(others)


def _renamed(state: RequestState, model: str) -> RequestState:
    old = state.request
    request = msgspec.structs.replace(old, model=model, **_deployment(old.model_deployment, model))
    return msgspec.structs.replace(state, request=request, result=None)


def _deployment(known: str, model: str) -> dict[str, str]:
    """Files of HELM 0.2 know no deployments, and are to be written as they were read."""
    return {"model_deployment": model} if known else {}
