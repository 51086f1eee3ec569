"""HELM's data model, metrics and run directories.

Names, file formats and values are HELM's: a file that is read and written again is the same byte for byte.

It may import ``scheduling``, ``runs`` and the packages below them; only ``reports``, ``cli`` and ``runners`` import it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
from assay.helm.general import asdict_without_nones, write
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
from assay.helm.tokenization import OptTokenizer

if TYPE_CHECKING:
    from assay.helm.engines.protocol import Engine
    from assay.helm.lm_eval_runs import export
    from assay.helm.metrics.base import Metric
    from assay.helm.metrics.registry import create_metric
    from assay.helm.options import EntryOptions, FlexLLMGenModel, LocalModel, MetricOptions
    from assay.helm.run_directory import run_entry
    from assay.helm.running.results import truncate_sequence
    from assay.helm.running.run import AnsweredRun, run
    from assay.helm.saved_run import ScoredRun, evaluate
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.stat_files import read_stats

_LATER = {
    "AnsweredRun": "assay.helm.running.run",
    "Engine": "assay.helm.engines.protocol",
    "EntryOptions": "assay.helm.options",
    "FlexLLMGenModel": "assay.helm.options",
    "LocalModel": "assay.helm.options",
    "Metric": "assay.helm.metrics.base",
    "MetricOptions": "assay.helm.options",
    "ScoredRun": "assay.helm.saved_run",
    "UnsafeCode": "assay.helm.scoring.code",
    "create_metric": "assay.helm.metrics.registry",
    "evaluate": "assay.helm.saved_run",
    "export": "assay.helm.lm_eval_runs",
    "read_stats": "assay.helm.stat_files",
    "run": "assay.helm.running.run",
    "run_entry": "assay.helm.run_directory",
    "truncate_sequence": "assay.helm.running.results",
}
"""Names that are imported at first use, with their modules."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AdapterSpec",
    "AnnotatorSpec",
    "AnsweredRun",
    "DataAugmenterSpec",
    "Engine",
    "EntryOptions",
    "FlexLLMGenModel",
    "GeneratedOutput",
    "Input",
    "Instance",
    "LocalModel",
    "Metric",
    "MetricContext",
    "MetricName",
    "MetricOptions",
    "MetricResult",
    "MetricSpec",
    "OptTokenizer",
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
    "ScoredRun",
    "Stat",
    "StateFile",
    "Substitution",
    "Token",
    "UnsafeCode",
    "asdict_without_nones",
    "create_metric",
    "evaluate",
    "export",
    "read_stats",
    "run",
    "run_entry",
    "truncate_sequence",
    "write",
]
