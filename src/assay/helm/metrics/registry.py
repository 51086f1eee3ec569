"""From HELM's class names to metrics."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError, UnknownMetricError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.helm.metrics.base import Metric
    from assay.helm.run_spec import MetricSpec

_PACKAGE = "helm.benchmark.metrics."

NATIVE: Mapping[str, str] = {
    f"{_PACKAGE}{helm_name}": f"assay.helm.metrics.{name}"
    for helm_name, name in {
        "basic_metrics.BasicGenerationMetric": "generation.BasicGenerationMetric",
        "basic_metrics.BasicReferenceMetric": "reference.BasicReferenceMetric",
        "basic_metrics.InstancesPerSplitMetric": "whole_run.InstancesPerSplitMetric",
        "basic_metrics.BasicMetric": "legacy.BasicMetric",
        "tokens_metric.TokensMetric": "legacy.TokensMetric",
        "language_modeling_metrics.LanguageModelingMetric": "language_modeling.LanguageModelingMetric",
        "classification_metrics.ClassificationMetric": "classification.ClassificationMetric",
        "classification_metrics.MultipleChoiceClassificationMetric": (
            "classification.MultipleChoiceClassificationMetric"
        ),
        "bias_metrics.BiasMetric": "bias.BiasMetric",
        "bbq_metrics.BBQMetric": "bbq.BBQMetric",
        "machine_translation_metrics.MachineTranslationMetric": "translation.MachineTranslationMetric",
    }.items()
}
"""HELM's class name to the class here that computes the same."""


def create_metric(metric_spec: MetricSpec) -> Metric:
    """Make the metric that a run specification names.

    Raises:
        UnknownMetricError: HELM's class is not computed here, or there is none of that name.
        MissingDependencyError: The metric needs a package that is not installed.
        SpecificationError: The arguments are not the metric's.
    """
    name = metric_spec.class_name
    if name not in NATIVE:
        raise _refusal(name)
    module, _, class_name = NATIVE[name].rpartition(".")
    metric_class: type[Metric] = getattr(importlib.import_module(module), class_name)
    return _construct(metric_class, metric_spec.args)


def _construct(metric_class: type[Metric], args: Mapping[str, Any]) -> Metric:
    try:
        inspect.signature(metric_class).bind(**args)
    except TypeError as error:
        raise SpecificationError(f"{metric_class.__name__}: {error}") from None
    return metric_class(**args)


def _refusal(name: str) -> UnknownMetricError:
    return UnknownMetricError(f"{name}")
