"""HELM's scenarios: what is asked, and which answers are right."""

from __future__ import annotations

from typing import Any

import msgspec

from assay.helm.structs import HelmStruct, Whole

CORRECT_TAG = "correct"
"""Tag of a reference that is a right answer."""


class PerturbationDescription(HelmStruct, frozen=True):
    """How an instance was changed to probe robustness or fairness."""

    name: str
    robustness: bool = False
    fairness: bool = False
    computed_on: str = "perturbed"
    """Which instances a statistic covers: ``perturbed``, ``original``, or ``worst`` of the two."""
    seed: Whole | None = None

    def __hash__(self) -> int:
        # A perturbation's own parameters are in `extras` and may be lists, so they take no part.
        return hash((self.name, self.computed_on, self.seed))


class Input(HelmStruct, frozen=True):
    """What an instance asks."""

    text: str = ""
    multimedia_content: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = None


class Output(HelmStruct, frozen=True):
    """What a reference answers."""

    text: str = ""
    multimedia_content: dict[str, Any] | None = None


class Reference(HelmStruct, frozen=True):
    """One possible answer, with tags that say what it is."""

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
    """How HELM makes a scenario."""

    class_name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class Scenario(HelmStruct, frozen=True):
    """What ``scenario.json`` says of a scenario."""

    name: str
    description: str | None = None
    tags: list[str] | None = None
    definition_path: str | None = None
