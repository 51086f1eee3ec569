"""Runs metrics of the installed crfm-helm for which Assay has no implementation.

The metrics' names come from files that anybody may have written. So a name imports only modules of HELM's metrics;
classes of the user are found only in modules that are already imported. Anything but a metric class is refused, and a
metric that runs code from files or models needs permission before it is created.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import tempfile
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from assay.errors import MissingDependencyError, SpecificationError, UnknownMetricError, UnsupportedTaskError
from assay.helm.adaptation import instance_key
from assay.helm.run_spec import MetricSpec
from assay.helm.scoring.code import CODE_SCORES
from assay.helm.stats import MetricResult, PerInstanceStats, Stat
from assay.helm.tokenization import TokenizationRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from assay.helm.adaptation import InstanceKey, RequestState, ScenarioState
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.tokenization import TokenizerService

_METRICS = "helm.benchmark.metrics."
_RUNS_MODEL_CODE = (f"{_METRICS}code_metrics", f"{_METRICS}codeinsights_")
"""Prefixes of modules whose metrics run code written by the model."""
_UNITXT = f"{_METRICS}unitxt_metrics"
_PROCESSING = f"{_METRICS}output_processing_metric"
_PROCESSORS = f"{_METRICS}output_processors."
_COMET, _COMET_OWN_MODELS = f"{_METRICS}comet_metric", "Unbabel/"


class InstalledHelmMetric:
    """A metric that the installed crfm-helm computes.

    Raises:
        MissingDependencyError: crfm-helm, or a package that the metric needs, is not installed.
        UnknownMetricError: The installed HELM has no metric of that name.
        SpecificationError: The metric does not take these arguments.
    """

    needs_answers: ClassVar[bool] = True

    def __init__(self, metric_spec: MetricSpec) -> None:
        self.class_name = metric_spec.class_name
        self._class = _find_class(self.class_name)
        self._args = metric_spec.args
        self._runs_code = _code_run_by(self._class, self._args)
        self._metric: Any = None if self._runs_code else self._make()

    def check_permission(self, unsafe_code: UnsafeCode | None) -> None:
        """Refuse a metric that runs code from the model or from a file, unless that is allowed.

        Raises:
            UnsupportedTaskError: It is not allowed.
            MissingDependencyError: A package that the metric needs is not installed.
            SpecificationError: The metric does not take these arguments.
        """
        if unsafe_code is None and self._runs_code:
            raise UnsupportedTaskError(
                f"{self.class_name} {self._runs_code}, in the installed HELM and without a sandbox; "
                "--confirm-run-unsafe-code, or unsafe_code=UnsafeCode() in Python, allows it"
            )
        if self._metric is None:
            self._metric = self._make()

    def evaluate(
        self,
        scenario_state: ScenarioState,
        metric_service: TokenizerService | None,
        eval_cache_path: str | None = None,
        parallelism: int = 4,
        unsafe_code: UnsafeCode | None = None,
    ) -> MetricResult:
        """Have HELM compute the metric. The arguments are those of `assay.helm.metrics.base.Metric.evaluate`.

        Raises:
            UnsupportedTaskError: The metric runs code, which is not allowed.
            SpecificationError: HELM's metric fails on this run; the message is HELM's.
        """
        self.check_permission(unsafe_code)
        service = None if metric_service is None else _HelmTokenizerService(metric_service)
        # Metrics unpickle files of their cache, so the working directory must not be the cache.
        with tempfile.TemporaryDirectory(prefix="assay-helm-") as folder:
            try:
                theirs = _helm_state(scenario_state)
                result = self._metric.evaluate(theirs, service, eval_cache_path or folder, parallelism)
                return _result_from_helm(result)
            except (Exception, SystemExit) as error:
                raise SpecificationError(
                    f"{self.class_name}, which runs in the installed HELM, failed: {type(error).__name__}: {error}"
                ) from error

    def _make(self) -> Any:
        try:
            return self._class(**self._args)
        except ImportError as error:
            raise MissingDependencyError(f"{self.class_name} cannot be created: {error}") from None
        except (Exception, SystemExit) as error:
            if type(error).__name__ == "OptionalDependencyNotInstalled":  # its message says what to install
                raise MissingDependencyError(f"{self.class_name}: {error}") from None
            raise SpecificationError(f"{self.class_name} cannot be created: {type(error).__name__}: {error}") from None


class _HelmTokenizerService:
    """Answers the installed HELM's tokenization requests with an Assay service."""

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
    """Find a metric class of the installed HELM.

    Raises:
        MissingDependencyError: crfm-helm, or a package that the class needs, is not installed.
        UnknownMetricError: There is no such metric.
    """
    module_name, _, name = class_name.rpartition(".")
    is_helms = module_name.startswith(_METRICS)
    is_installed = (
        importlib.util.find_spec("helm") is not None and importlib.util.find_spec("helm.benchmark") is not None
    )
    if not is_helms and (module_name not in sys.modules or not is_installed):
        raise UnknownMetricError(
            f"{class_name} is not one of HELM's metrics ({_METRICS}…); import your own metric's module with --plugin"
        )
    if not is_installed:
        raise MissingDependencyError(f"only HELM computes {class_name}, and it is not installed: pip install crfm-helm")
    metrics = importlib.import_module("helm.benchmark.metrics.metric")
    bases = tuple(vars(metrics)[base] for base in ("MetricInterface", "Metric") if base in vars(metrics))
    module = _import(class_name, module_name) if is_helms else sys.modules[module_name]
    found = vars(module).get(name)
    if not (isinstance(found, type) and issubclass(found, bases)):
        raise UnknownMetricError(f"the installed HELM has no metric {class_name}")
    return found


def _import(class_name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and module_name.startswith(error.name):
            raise UnknownMetricError(f"the installed HELM has no metric {class_name}") from None
        raise MissingDependencyError(f"{class_name} needs the package {error.name}, which is not installed") from None
    except (Exception, SystemExit) as error:
        raise MissingDependencyError(f"{class_name} cannot be loaded from the installed HELM: {error}") from None


def _code_run_by(metric_class: type, args: Mapping[str, Any]) -> str | None:
    """What code from a model or a file a metric runs, as the end of a sentence; None if it runs none.

    Raises:
        UnknownMetricError: A metric in the arguments does not exist.
    """
    modules = tuple(base.__module__ for base in metric_class.__mro__)
    if any(module.startswith(_RUNS_MODEL_CODE) for module in modules):
        return "runs code that the model wrote"
    if _UNITXT in modules:
        return "runs code from the recipe in its arguments"
    model = args.get("model_name")
    if _COMET in modules and model is not None and not str(model).startswith(_COMET_OWN_MODELS):
        return f"loads the model {model!r}, whose files may hold code"
    if _PROCESSING in modules:
        return _code_run_by_processing(args)
    return None


def _code_run_by_processing(args: Mapping[str, Any]) -> str | None:
    """The same for ``OutputProcessingMetric``, which passes answers through a function to other metrics."""
    inner = args.get("metric_specs")
    specs = [MetricSpec.from_builtins(value, "metric_specs") for value in inner] if isinstance(inner, list) else []
    reasons = [_code_run_by(_find_class(spec.class_name), spec.args) for spec in specs]
    if any(name in CODE_SCORES for spec in specs for name in spec.args.get("names") or ()):
        reasons.append("runs code that the model wrote")
    processor = args.get("processor")
    if not str(processor).startswith(_PROCESSORS):
        reasons.append(f"passes the model's answers to {processor}")
    return next((reason for reason in reasons if reason), None)


def _helm_state(state: ScenarioState) -> Any:
    """The state as HELM's own classes. Equal instances become one object, since HELM compares them by identity."""
    codec = importlib.import_module("helm.common.codec")
    theirs = importlib.import_module("helm.benchmark.adaptation.scenario_state").ScenarioState
    converted = codec.from_json(state.to_json(), theirs)
    instances: dict[InstanceKey, Any] = {}
    shared = [
        _share(ours, one, instances) for ours, one in zip(state.request_states, converted.request_states, strict=True)
    ]
    return theirs(converted.adapter_spec, shared, converted.annotator_specs)


def _result_from_helm(theirs: Any) -> MetricResult:
    as_dict = importlib.import_module("helm.common.general").asdict_without_nones

    def plain(record: Any) -> Any:
        return msgspec.to_builtins(as_dict(record), enc_hook=_plain_number)

    return MetricResult(
        [Stat.from_builtins(plain(stat), "a Stat") for stat in theirs.aggregated_stats],
        [PerInstanceStats.from_builtins(plain(stats), "a PerInstanceStats") for stats in theirs.per_instance_stats],
    )


def _plain_number(value: Any) -> Any:
    """NumPy's number as Python's: metrics return both."""
    if not hasattr(value, "item"):
        raise TypeError(f"{value!r:.60} is not a number")
    return value.item()


def _share(ours: RequestState, theirs: Any, instances: dict[InstanceKey, Any]) -> Any:
    return dataclasses.replace(theirs, instance=instances.setdefault(instance_key(ours.instance), theirs.instance))
