"""HELM's scenarios: instances and their references."""

from __future__ import annotations

from typing import Any

import msgspec

from assay.helm.structs import HelmStruct, Int64

CORRECT_TAG = "correct"
"""Tag of a reference that is a right answer."""


class PerturbationDescription(HelmStruct, frozen=True):
    """How an instance was changed to probe robustness or fairness."""

    name: str
    robustness: bool = False
    fairness: bool = False
    computed_on: str = "perturbed"
    """Which instances a statistic covers: ``perturbed``, ``original``, or ``worst`` of the two."""
    seed: Int64 | None = None

    def __hash__(self) -> int:
        # A perturbation's parameters are in `extras` and may be lists, which have no hash.
        return hash((self.name, self.computed_on, self.seed))


class Input(HelmStruct, frozen=True):
    """The question of an instance."""

    text: str = ""
    multimedia_content: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = None


class Output(HelmStruct, frozen=True):
    """The text of a reference."""

    text: str = ""
    multimedia_content: dict[str, Any] | None = None


class Reference(HelmStruct, frozen=True):
    """One possible answer, with tags such as ``correct``."""

    output: Output
    tags: list[str]

    @property
    def is_correct(self) -> bool:
        """Whether this is a right answer."""
        return CORRECT_TAG in self.tags


class Instance(HelmStruct, frozen=True):
    """One item of a scenario."""

    input: Input
    references: list[Reference]
    split: str | None = None
    sub_split: str | None = None
    id: str | None = None
    """Shared by an instance and its perturbed copies."""
    perturbation: PerturbationDescription | None = None
    contrast_inputs: list[Input] | None = None
    contrast_references: list[list[Reference]] | None = None
    extra_data: dict[str, Any] | None = None

    @property
    def first_correct_reference(self) -> Reference | None:
        """The first right answer, if there is one."""
        return next((reference for reference in self.references if reference.is_correct), None)

    @property
    def all_correct_references(self) -> list[Reference]:
        """The right answers, in order."""
        return [reference for reference in self.references if reference.is_correct]


class ScenarioSpec(HelmStruct, frozen=True):
    """A scenario's class and its arguments."""

    class_name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class Scenario(HelmStruct, frozen=True):
    """The content of ``scenario.json``."""

    name: str
    description: str | None = None
    tags: list[str] | None = None
    definition_path: str | None = None
