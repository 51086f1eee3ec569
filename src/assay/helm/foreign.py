"""Metrics that only the installed crfm-helm computes, run there on our data."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from assay.errors import MissingDependencyError, SpecificationError, UnknownMetricError, UnsupportedTaskError
from assay.helm.adaptation import instance_key
from assay.helm.stats import MetricResult, PerInstanceStats, Stat
from assay.helm.tokenization import TokenizationRequest

if TYPE_CHECKING:
    from assay.helm.adaptation import InstanceKey, RequestState, ScenarioState
    from assay.helm.run_spec import MetricSpec
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.tokenization import TokenizerService


_RUN_CODE = ("helm.benchmark.metrics.code_metrics.", "helm.benchmark.metrics.codeinsights_")
"""How the names of HELM's classes begin that run programs themselves."""


class ForeignMetric:
    """A metric of the installed HELM.

    Raises:
        MissingDependencyError: crfm-helm, or a package that the metric needs, is not installed.
        UnknownMetricError: The installed HELM has no class of that name.
        SpecificationError: The arguments are not the metric's.
    """

    def __init__(self, metric_spec: MetricSpec) -> None:
        self.class_name = metric_spec.class_name
        metric_class = _find_class(self.class_name)
        try:
            self._metric: Any = metric_class(**metric_spec.args)
        except (TypeError, ValueError, AssertionError) as error:
            raise SpecificationError(f"{self.class_name}: {error}") from None

    def check_permission(self, unsafe_code: UnsafeCode | None) -> None:
        """Refuse a class that runs what the model wrote, unless that was allowed.

        Raises:
            UnsupportedTaskError: It was not allowed.
        """
        if unsafe_code is None and self.class_name.startswith(_RUN_CODE):
            raise UnsupportedTaskError(
                f"{self.class_name} runs code that the model wrote, in the installed HELM and without a sandbox; "
                "--confirm-run-unsafe-code, or unsafe_code=UnsafeCode() in Python, allows it"
            )

    def evaluate(
        self,
        scenario_state: ScenarioState,
        metric_service: TokenizerService | None,
        eval_cache_path: str | None = None,
        parallelism: int = 4,
        unsafe_code: UnsafeCode | None = None,
    ) -> MetricResult:
        """Let HELM compute the metric; the arguments are those of `assay.helm.metrics.base.Metric.evaluate`.

        Raises:
            UnsupportedTaskError: The metric runs what the model wrote, and nobody has allowed that.
            SpecificationError: HELM's metric fails on this run; the message is HELM's.
        """
        self.check_permission(unsafe_code)
        theirs = _their_state(scenario_state)
        service = None if metric_service is None else _TheirService(metric_service)
        try:
            result = self._metric.evaluate(theirs, service, eval_cache_path or "", parallelism)
        except Exception as error:
            raise SpecificationError(
                f"{self.class_name}, which runs in the installed HELM, failed: {type(error).__name__}: {error}"
            ) from error
        as_dict = importlib.import_module("helm.common.general").asdict_without_nones
        return MetricResult(
            [Stat.from_builtins(as_dict(stat)) for stat in result.aggregated_stats],
            [PerInstanceStats.from_builtins(as_dict(stats)) for stats in result.per_instance_stats],
        )


class _TheirService:
    """Answers the installed HELM's tokenize requests with the service at hand."""

    def __init__(self, service: TokenizerService) -> None:
        self._service = service

    def tokenize(self, request: Any) -> Any:
        answer = self._service.tokenize(
            TokenizationRequest(request.text, request.tokenizer, request.encode, request.truncation, request.max_length)
        )
        theirs = importlib.import_module("helm.common.tokenization_request")
        tokens = [theirs.TokenizationToken(token.value) for token in answer.tokens]
        return theirs.TokenizationRequestResult(success=True, cached=False, text=request.text, tokens=tokens)


def _find_class(class_name: str) -> Any:
    if importlib.util.find_spec("helm") is None or importlib.util.find_spec("helm.benchmark") is None:
        raise MissingDependencyError(
            f"{class_name} is not computed here, and HELM is not installed to compute it: pip install crfm-helm"
        )
    module_name, _, name = class_name.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise UnknownMetricError(f"the installed HELM has no metric {class_name}") from None
        raise MissingDependencyError(f"{class_name} needs the package {error.name}, which is not installed") from None
    except (AttributeError, ValueError):
        raise UnknownMetricError(f"the installed HELM has no metric {class_name}") from None
    except Exception as error:
        raise MissingDependencyError(f"{class_name} cannot be loaded from the installed HELM: {error}") from None


def _their_state(state: ScenarioState) -> Any:
    """The state in HELM's own classes. Its instances are one object each, for HELM tells them apart by identity."""
    codec = importlib.import_module("helm.common.codec")
    theirs = importlib.import_module("helm.benchmark.adaptation.scenario_state").ScenarioState
    converted = codec.from_json(state.to_json(), theirs)
    instances: dict[InstanceKey, Any] = {}
    shared = [
        _share(ours, one, instances) for ours, one in zip(state.request_states, converted.request_states, strict=True)
    ]
    return theirs(converted.adapter_spec, shared, converted.annotator_specs)


def _share(ours: RequestState, theirs: Any, instances: dict[InstanceKey, Any]) -> Any:
    return dataclasses.replace(theirs, instance=instances.setdefault(instance_key(ours.instance), theirs.instance))
