"""Creates metrics from HELM's class names."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.helm.installed_helm import InstalledHelmMetric

if TYPE_CHECKING:
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
        "ranking_metrics.RankingMetric": "ranking.RankingMetric",
        "machine_translation_metrics.MachineTranslationMetric": "translation.MachineTranslationMetric",
    }.items()
}
"""HELM's class names, with the class here that computes the same."""

LM_EVAL_SCORES = "assay.helm.lm_eval_runs.Scores"
"""The class name under which run specifications list lm-eval's metrics. There is no such class."""


def create_metric(metric_spec: MetricSpec) -> Metric | InstalledHelmMetric:
    """Create a metric of a run specification: Assay's implementation, or else the installed HELM's.

    Raises:
        MissingDependencyError: The metric needs a package that is not installed: crfm-helm, if only HELM computes it.
        UnknownMetricError: There is no metric of that name.
        SpecificationError: The metric does not take these arguments.
        UnsupportedTaskError: The metric is lm-eval's.
    """
    name = metric_spec.class_name
    if name == LM_EVAL_SCORES:
        raise UnsupportedTaskError(
            "the run was made from a task of lm-eval, and only the task computes its scores: assay helm show shows "
            "them, assay run runs the task again; assay helm evaluate --metric NAME --output-dir DIR computes HELM's"
        )
    if name not in NATIVE:
        return InstalledHelmMetric(metric_spec)
    module, _, class_name = NATIVE[name].rpartition(".")
    metric_class: type[Metric] = getattr(importlib.import_module(module), class_name)
    _check_arguments(metric_class, metric_spec.args)
    return metric_class(**metric_spec.args)


def _check_arguments(metric_class: type[Metric], args: Mapping[str, Any]) -> None:
    name = metric_class.__name__
    try:
        inspect.signature(metric_class).bind(**args)
    except TypeError as error:
        raise SpecificationError(f"{name}: {error}") from None
    hints = typing.get_type_hints(metric_class.__init__, localns={"Sequence": Sequence})
    for key, value in args.items():
        try:
            msgspec.convert(value, hints[key])
        except (msgspec.ValidationError, UnicodeEncodeError):  # UnicodeEncodeError: a lone surrogate
            raise SpecificationError(f"{name}: {key}={value!r} has the wrong type") from None
