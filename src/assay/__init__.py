"""Assay tells whether a served language model still answers as it should, how sure that is, and if not, why.

Names are imported when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from assay._version import __version__

TYPE_CHECKING = False  # as type checkers know it: `typing` alone would take longer than all the rest of this
if TYPE_CHECKING:
    from typing import Any

    from assay.diagnosis.findings import Cause, Confidence, Example, Finding, Triage
    from assay.errors import (
        AssayError,
        BaselineMismatchError,
        DataNotFoundError,
        FewerStatisticsError,
        FileFormatError,
        JournalError,
        JournalLockedError,
        JournalVersionError,
        MetricFailedError,
        MissingDependencyError,
        ModelNotServedError,
        NothingMeasuredError,
        OutputError,
        ReplicasDifferError,
        RunInterrupted,
        SamplesFailedError,
        SandboxError,
        ServerChangedError,
        ServerRefusedError,
        ServerUnreachableError,
        SpecificationError,
        StorageError,
        TaskConfigError,
        UnjudgeableError,
        UnknownMetricError,
        UnknownTaskError,
        UnsupportedTaskError,
        UsageError,
    )
    from assay.evaluation import Evaluation, evaluate, evaluate_async
    from assay.gate.calibrate import Calibration, Noise, calibrate
    from assay.gate.explain import Outlook, explain_gate
    from assay.gate.policy import CheckEntry, Policy, load_policy
    from assay.gate.run import GateReport, ModelOutcome, run_gate
    from assay.lm_eval_process.process import run_lm_eval
    from assay.progress import Progress, Snapshot, Standing
    from assay.reports.progress import show_progress
    from assay.results.verdicts import CheckResult, Verdict
    from assay.runners import (
        RunnerOptions,
        resolve_metric,
        run_accuracy_bbh,
        run_accuracy_gsm8k,
        run_accuracy_gsm8k_cot,
        run_accuracy_gsm8k_cot_llama,
        run_accuracy_ifeval,
        run_accuracy_mmlu_pro,
    )
    from assay.runs.record import Part
    from assay.scoring.corrections import Correction
    from assay.scoring.measure import Score
    from assay.scoring.task_scores import FailedSample
    from assay.stats.intervals import Interval
    from assay.types import (
        TLS,
        Answer,
        Budget,
        Check,
        Completion,
        CompletionToken,
        EarlyStopping,
        Failure,
        FailureCause,
        ModelSpec,
        Outcome,
        Request,
        Sample,
        Specification,
        StoppedEarly,
        TaskOptions,
        TextTail,
        TokenSpan,
    )

_HOMES = {
    "assay.diagnosis.findings": "Cause Confidence Example Finding Triage",
    "assay.errors": (
        "AssayError BaselineMismatchError DataNotFoundError FewerStatisticsError FileFormatError JournalError "
        "JournalLockedError JournalVersionError MetricFailedError MissingDependencyError ModelNotServedError "
        "NothingMeasuredError OutputError ReplicasDifferError RunInterrupted SamplesFailedError SandboxError "
        "ServerChangedError ServerRefusedError ServerUnreachableError SpecificationError StorageError "
        "TaskConfigError UnjudgeableError UnknownMetricError UnknownTaskError UnsupportedTaskError UsageError"
    ),
    "assay.evaluation": "Evaluation evaluate evaluate_async",
    "assay.gate.calibrate": "Calibration Noise calibrate",
    "assay.gate.explain": "Outlook explain_gate",
    "assay.gate.policy": "CheckEntry Policy load_policy",
    "assay.gate.run": "GateReport ModelOutcome run_gate",
    "assay.lm_eval_process.process": "run_lm_eval",
    "assay.progress": "Progress Snapshot Standing",
    "assay.reports.progress": "show_progress",
    "assay.results.verdicts": "CheckResult Verdict",
    "assay.runners": (
        "RunnerOptions resolve_metric run_accuracy_bbh run_accuracy_gsm8k run_accuracy_gsm8k_cot "
        "run_accuracy_gsm8k_cot_llama run_accuracy_ifeval run_accuracy_mmlu_pro"
    ),
    "assay.runs.record": "Part",
    "assay.scoring.corrections": "Correction",
    "assay.scoring.measure": "Score",
    "assay.scoring.task_scores": "FailedSample",
    "assay.stats.intervals": "Interval",
    "assay.types": (
        "Answer Budget Check Completion CompletionToken EarlyStopping Failure FailureCause ModelSpec Outcome "
        "Request Sample Specification StoppedEarly TLS TaskOptions TextTail TokenSpan"
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [
    "TLS",
    "Answer",
    "AssayError",
    "BaselineMismatchError",
    "Budget",
    "Calibration",
    "Cause",
    "Check",
    "CheckEntry",
    "CheckResult",
    "Completion",
    "CompletionToken",
    "Confidence",
    "Correction",
    "DataNotFoundError",
    "EarlyStopping",
    "Evaluation",
    "Example",
    "FailedSample",
    "Failure",
    "FailureCause",
    "FewerStatisticsError",
    "FileFormatError",
    "Finding",
    "GateReport",
    "Interval",
    "JournalError",
    "JournalLockedError",
    "JournalVersionError",
    "MetricFailedError",
    "MissingDependencyError",
    "ModelNotServedError",
    "ModelOutcome",
    "ModelSpec",
    "Noise",
    "NothingMeasuredError",
    "Outcome",
    "Outlook",
    "OutputError",
    "Part",
    "Policy",
    "Progress",
    "ReplicasDifferError",
    "Request",
    "RunInterrupted",
    "RunnerOptions",
    "Sample",
    "SamplesFailedError",
    "SandboxError",
    "Score",
    "ServerChangedError",
    "ServerRefusedError",
    "ServerUnreachableError",
    "Snapshot",
    "Specification",
    "SpecificationError",
    "Standing",
    "StoppedEarly",
    "StorageError",
    "TaskConfigError",
    "TaskOptions",
    "TextTail",
    "TokenSpan",
    "Triage",
    "UnjudgeableError",
    "UnknownMetricError",
    "UnknownTaskError",
    "UnsupportedTaskError",
    "UsageError",
    "Verdict",
    "__version__",
    "calibrate",
    "evaluate",
    "evaluate_async",
    "explain_gate",
    "load_policy",
    "resolve_metric",
    "run_accuracy_bbh",
    "run_accuracy_gsm8k",
    "run_accuracy_gsm8k_cot",
    "run_accuracy_gsm8k_cot_llama",
    "run_accuracy_ifeval",
    "run_accuracy_mmlu_pro",
    "run_gate",
    "run_lm_eval",
    "show_progress",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'assay' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
