"""Assay tells whether a served language model still answers as it should, how sure that is, and if not, why.

Names are imported when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from assay._version import __version__

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest of this
if TYPE_CHECKING:
    from typing import Any

    from assay.client.probe.probing import probe, probe_async
    from assay.client.probe.report import Capability, Observation, ProbeReport, Seen
    from assay.client.server_info import ServedModel
    from assay.diagnosis.causes import Cause
    from assay.diagnosis.findings import CauseShare, Confidence, Example, Finding, LossReference, Triage, Waterfall
    from assay.diagnosis.run import triage
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
    from assay.gate.identity_check import IdentityOutcome
    from assay.gate.policy import CheckEntry, IdentityEntry, Overrides, Policy, load_policy
    from assay.gate.run import GateReport, ModelOutcome, run_gate
    from assay.identity.checking import Identity, IdentityResult, PromptDifference
    from assay.inprocess.engine import Engine, Generated, Generation, GenerationPrompt, Scored, ScoredPrompt
    from assay.inprocess.preparing import LocalModel
    from assay.lm_eval_process.process import run_lm_eval
    from assay.progress import Progress, Snapshot, Standing
    from assay.reports.comparison import comparison_markdown
    from assay.reports.gate import gate_markdown
    from assay.reports.html import report
    from assay.reports.junit import junit_xml
    from assay.reports.progress import show_progress
    from assay.rescoring.rescore import Difference, Rescored, score
    from assay.results.check_results import CheckResult, Verdict
    from assay.results.document import AssayPart, ResultsDocument
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
    from assay.runs.compare import Change, Comparison, Flip, compare
    from assay.runs.files import read_run
    from assay.runs.record import AnswerText, GroupRecord, Part, RecordedRun, TaskRecord
    from assay.runs.sample_choice import ChosenSample, SampleChoice, read_samples
    from assay.runs.samples import Filtered, Message, Prompt, RunSample
    from assay.runs.saving import SavedBaseline, save_baseline
    from assay.scoring.corrections import Correction
    from assay.scoring.measure import Score
    from assay.stats.intervals import Interval
    from assay.tasks.chat_template import ChatTemplate
    from assay.tasks.index import TaskEntry, TaskKind, list_tasks
    from assay.tasks.tokenizer import Tokenizer
    from assay.types import (
        TLS,
        Answer,
        Budget,
        Check,
        Completion,
        CompletionToken,
        EarlyStopping,
        FailedSample,
        Failure,
        FailureCause,
        LocalOptions,
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

_EXPORTS = {
    "assay.diagnosis.causes": "Cause",
    "assay.diagnosis.findings": "Confidence Example Finding LossReference CauseShare Triage Waterfall",
    "assay.diagnosis.run": "triage",
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
    "assay.gate.identity_check": "IdentityOutcome",
    "assay.identity.checking": "Identity IdentityResult PromptDifference",
    "assay.gate.policy": "CheckEntry IdentityEntry Overrides Policy load_policy",
    "assay.gate.run": "GateReport ModelOutcome run_gate",
    "assay.inprocess.engine": "Engine Generated Generation GenerationPrompt Scored ScoredPrompt",
    "assay.inprocess.preparing": "LocalModel",
    "assay.lm_eval_process.process": "run_lm_eval",
    "assay.client.probe.probing": "probe probe_async",
    "assay.client.probe.report": "Capability Observation ProbeReport Seen",
    "assay.client.server_info": "ServedModel",
    "assay.progress": "Progress Snapshot Standing",
    "assay.reports.comparison": "comparison_markdown",
    "assay.reports.gate": "gate_markdown",
    "assay.reports.html": "report",
    "assay.reports.junit": "junit_xml",
    "assay.reports.progress": "show_progress",
    "assay.rescoring.rescore": "Difference Rescored score",
    "assay.results.document": "AssayPart ResultsDocument",
    "assay.results.check_results": "CheckResult Verdict",
    "assay.runners": (
        "RunnerOptions resolve_metric run_accuracy_bbh run_accuracy_gsm8k run_accuracy_gsm8k_cot "
        "run_accuracy_gsm8k_cot_llama run_accuracy_ifeval run_accuracy_mmlu_pro"
    ),
    "assay.runs.compare": "Change Comparison Flip compare",
    "assay.runs.files": "read_run",
    "assay.runs.record": "AnswerText GroupRecord Part RecordedRun TaskRecord",
    "assay.runs.sample_choice": "ChosenSample SampleChoice read_samples",
    "assay.runs.samples": "Filtered Message Prompt RunSample",
    "assay.runs.saving": "SavedBaseline save_baseline",
    "assay.scoring.corrections": "Correction",
    "assay.scoring.measure": "Score",
    "assay.stats.intervals": "Interval",
    "assay.tasks.chat_template": "ChatTemplate",
    "assay.tasks.tokenizer": "Tokenizer",
    "assay.tasks.index": "TaskEntry TaskKind list_tasks",
    "assay.types": (
        "Answer Budget Check Completion CompletionToken EarlyStopping FailedSample Failure FailureCause "
        "LocalOptions ModelSpec Outcome Request Sample Specification StoppedEarly TLS TaskOptions TextTail TokenSpan"
    ),
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = [
    "TLS",
    "Answer",
    "AnswerText",
    "AssayError",
    "AssayPart",
    "BaselineMismatchError",
    "Budget",
    "Calibration",
    "Capability",
    "Cause",
    "CauseShare",
    "Change",
    "ChatTemplate",
    "Check",
    "CheckEntry",
    "CheckResult",
    "ChosenSample",
    "Comparison",
    "Completion",
    "CompletionToken",
    "Confidence",
    "Correction",
    "DataNotFoundError",
    "Difference",
    "EarlyStopping",
    "Engine",
    "Evaluation",
    "Example",
    "FailedSample",
    "Failure",
    "FailureCause",
    "FewerStatisticsError",
    "FileFormatError",
    "Filtered",
    "Finding",
    "Flip",
    "GateReport",
    "Generated",
    "Generation",
    "GenerationPrompt",
    "GroupRecord",
    "Identity",
    "IdentityEntry",
    "IdentityOutcome",
    "IdentityResult",
    "Interval",
    "JournalError",
    "JournalLockedError",
    "JournalVersionError",
    "LocalModel",
    "LocalOptions",
    "LossReference",
    "Message",
    "MetricFailedError",
    "MissingDependencyError",
    "ModelNotServedError",
    "ModelOutcome",
    "ModelSpec",
    "Noise",
    "NothingMeasuredError",
    "Observation",
    "Outcome",
    "Outlook",
    "OutputError",
    "Overrides",
    "Part",
    "Policy",
    "ProbeReport",
    "Progress",
    "Prompt",
    "PromptDifference",
    "RecordedRun",
    "ReplicasDifferError",
    "Request",
    "Rescored",
    "ResultsDocument",
    "RunInterrupted",
    "RunSample",
    "RunnerOptions",
    "Sample",
    "SampleChoice",
    "SamplesFailedError",
    "SandboxError",
    "SavedBaseline",
    "Score",
    "Scored",
    "ScoredPrompt",
    "Seen",
    "ServedModel",
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
    "TaskEntry",
    "TaskKind",
    "TaskOptions",
    "TaskRecord",
    "TextTail",
    "TokenSpan",
    "Tokenizer",
    "Triage",
    "UnjudgeableError",
    "UnknownMetricError",
    "UnknownTaskError",
    "UnsupportedTaskError",
    "UsageError",
    "Verdict",
    "Waterfall",
    "__version__",
    "calibrate",
    "compare",
    "comparison_markdown",
    "evaluate",
    "evaluate_async",
    "explain_gate",
    "gate_markdown",
    "junit_xml",
    "list_tasks",
    "load_policy",
    "probe",
    "probe_async",
    "read_run",
    "read_samples",
    "report",
    "resolve_metric",
    "run_accuracy_bbh",
    "run_accuracy_gsm8k",
    "run_accuracy_gsm8k_cot",
    "run_accuracy_gsm8k_cot_llama",
    "run_accuracy_ifeval",
    "run_accuracy_mmlu_pro",
    "run_gate",
    "run_lm_eval",
    "save_baseline",
    "score",
    "show_progress",
    "triage",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'assay' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
