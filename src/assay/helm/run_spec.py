"""HELM's run specification: the scenario, adaptation and metrics of a run."""

from __future__ import annotations

from typing import Any

import msgspec

from assay.helm.adaptation import AdapterSpec  # noqa: TC001 - msgspec resolves the annotations
from assay.helm.scenario import ScenarioSpec  # noqa: TC001 - msgspec resolves the annotations
from assay.helm.structs import HelmStruct, Int64, keep_as_lists


class MetricSpec(HelmStruct, frozen=True):
    """A metric's class and its arguments."""

    class_name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class PerturbationSpec(HelmStruct, frozen=True):
    """A perturbation's class and its arguments."""

    class_name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class AnnotatorSpec(HelmStruct, frozen=True):
    """An annotator's class and its arguments."""

    class_name: str
    args: dict[str, Any] = msgspec.field(default_factory=dict)


class DataAugmenterSpec(HelmStruct, frozen=True):
    """How perturbed copies of instances are made."""

    perturbation_specs: list[PerturbationSpec] = msgspec.field(default_factory=list)
    should_augment_train_instances: bool = False
    should_include_original_train: bool = False
    should_skip_unchanged_train: bool = False
    should_augment_eval_instances: bool = False
    should_include_original_eval: bool = False
    should_skip_unchanged_eval: bool = False
    seeds_per_instance: Int64 = 1


class RunSpec(HelmStruct, frozen=True):
    """Everything that defines a run."""

    name: str
    scenario_spec: ScenarioSpec
    adapter_spec: AdapterSpec
    metric_specs: list[MetricSpec]
    data_augmenter_spec: DataAugmenterSpec = DataAugmenterSpec()
    groups: list[str] = msgspec.field(default_factory=list)
    annotators: list[AnnotatorSpec] | None = None

    def __post_init__(self) -> None:
        keep_as_lists(self, "metric_specs", "groups", "annotators")
