"""What the package offers, and what importing it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import assay

EXPORTED = [
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
    "TLS",
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
HEAVY = ("aiohttp", "datasets", "lm_eval", "nltk", "numpy", "pandas", "rich", "scipy", "torch", "transformers")
SOURCE = Path(assay.__file__).parent


def test_exported_names() -> None:
    assert sorted(assay.__all__) == EXPORTED
    for name in EXPORTED:
        assert getattr(assay, name) is not None
    assert callable(assay.evaluate), "a module of that name would hide the function"


def test_functions_are_not_hidden_by_modules_of_their_name() -> None:
    import assay.evaluation

    assert callable(assay.evaluate)


def test_type_checkers_see_the_names_where_they_are_imported_from() -> None:
    seen = {
        alias.name: node.module
        for node in ast.walk(ast.parse(SOURCE.joinpath("__init__.py").read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and str(node.module).startswith("assay.")
        and node.module != "assay._version"
        for alias in node.names
    }
    assert seen == assay._MODULE_OF


def describe_error(thing: object) -> set[str]:
    """The words in the annotations of a function, or of a class' fields, properties and methods."""
    members = [thing]
    if isinstance(thing, type):
        for name, member in vars(thing).items():
            if not name.startswith("_"):
                members.append(member.fget if isinstance(member, property) else member)
    texts = [text for member in members for text in getattr(member, "__annotations__", {}).values()]
    return set(re.findall(r"\w+", " ".join(map(str, texts))))


def test_every_type_that_an_exported_name_takes_or_holds_is_exported() -> None:
    types = {
        node.name
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    names = {*EXPORTED} - {"ResultsDocument", "AssayPart"}  # whose parts are on their module's page
    missing = {
        name: unknown for name in names if (unknown := describe_error(getattr(assay, name)) & types - {*EXPORTED})
    }
    assert not missing


def test_every_error_is_exported() -> None:
    import assay.errors

    errors = {name for name, thing in vars(assay.errors).items() if isinstance(thing, type)}
    assert errors <= {*EXPORTED}


def test_importing_and_helping_load_nothing_heavy() -> None:
    script = (
        "import sys, assay, assay.cli\n"
        "try: assay.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"
    assert "Exit codes" in ran.stdout
