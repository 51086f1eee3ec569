"""HELM's data model, metrics and run directories.

Everything has HELM's names. Reading and writing keep HELM's files byte for byte; the metrics' values are HELM's.
"""

from assay.helm.adaptation import (
    AdapterSpec,
    GeneratedOutput,
    Request,
    RequestResult,
    RequestState,
    ScenarioState,
    Substitution,
    Token,
)
from assay.helm.run_spec import AnnotatorSpec, DataAugmenterSpec, MetricSpec, PerturbationSpec, RunSpec
from assay.helm.scenario import (
    Input,
    Instance,
    Output,
    PerturbationDescription,
    Reference,
    Scenario,
    ScenarioSpec,
)
from assay.helm.state_file import StateFile
from assay.helm.stats import MetricContext, MetricName, MetricResult, PerInstanceStats, Stat

__all__ = [
    "AdapterSpec",
    "AnnotatorSpec",
    "DataAugmenterSpec",
    "GeneratedOutput",
    "Input",
    "Instance",
    "MetricContext",
    "MetricName",
    "MetricResult",
    "MetricSpec",
    "Output",
    "PerInstanceStats",
    "PerturbationDescription",
    "PerturbationSpec",
    "Reference",
    "Request",
    "RequestResult",
    "RequestState",
    "RunSpec",
    "Scenario",
    "ScenarioSpec",
    "ScenarioState",
    "Stat",
    "StateFile",
    "Substitution",
    "Token",
]
