"""Assay tells whether a served language model still answers as it should, how sure that is, and if not, why.

Names are imported when first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from assay._version import __version__

TYPE_CHECKING = False  # as type checkers know it: `typing` alone would take longer than all the rest of this
if TYPE_CHECKING:
    from typing import Any

    from assay.errors import AssayError
    from assay.evaluation import Evaluation, evaluate, evaluate_async
    from assay.gate.policy import Policy, load_policy
    from assay.gate.run import GateReport, run_gate
    from assay.lm_eval_process.process import run_lm_eval
    from assay.progress import Progress
    from assay.results.verdicts import CheckResult, Verdict
    from assay.runners import (
        resolve_metric,
        run_accuracy_bbh,
        run_accuracy_gsm8k,
        run_accuracy_gsm8k_cot,
        run_accuracy_gsm8k_cot_llama,
        run_accuracy_ifeval,
        run_accuracy_mmlu_pro,
    )
    from assay.scoring.corrections import Correction
    from assay.scoring.measure import Score
    from assay.types import Budget, Check, EarlyStopping, ModelSpec, Specification, StoppedEarly, TaskOptions

_HOMES = {
    "assay.scoring.corrections": ("Correction",),
    "assay.errors": ("AssayError",),
    "assay.evaluation": ("Evaluation", "evaluate", "evaluate_async"),
    "assay.gate.policy": ("Policy", "load_policy"),
    "assay.gate.run": ("GateReport", "run_gate"),
    "assay.checks.verdicts": ("CheckResult", "Verdict"),
    "assay.lm_eval_process.process": ("run_lm_eval",),
    "assay.scoring.measure": ("Score",),
    "assay.progress": ("Progress",),
    "assay.runners": (
        "resolve_metric",
        "run_accuracy_bbh",
        "run_accuracy_gsm8k",
        "run_accuracy_gsm8k_cot",
        "run_accuracy_gsm8k_cot_llama",
        "run_accuracy_ifeval",
        "run_accuracy_mmlu_pro",
    ),
    "assay.types": ("Budget", "Check", "EarlyStopping", "ModelSpec", "Specification", "StoppedEarly", "TaskOptions"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AssayError",
    "Budget",
    "Check",
    "CheckResult",
    "Correction",
    "EarlyStopping",
    "Evaluation",
    "GateReport",
    "ModelSpec",
    "Policy",
    "Progress",
    "Score",
    "Specification",
    "StoppedEarly",
    "TaskOptions",
    "Verdict",
    "__version__",
    "evaluate",
    "evaluate_async",
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
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'assay' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
