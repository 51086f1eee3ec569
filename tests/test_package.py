"""What the package offers, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import assay

EXPORTED = [
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
HEAVY = ("aiohttp", "datasets", "lm_eval", "nltk", "numpy", "pandas", "rich", "scipy", "torch", "transformers")


def test_exported_names() -> None:
    assert sorted(assay.__all__) == EXPORTED
    for name in EXPORTED:
        assert getattr(assay, name) is not None
    assert callable(assay.evaluate), "a module of that name would hide the function"


def test_functions_are_not_hidden_by_modules_of_their_name() -> None:
    import assay.evaluation

    assert callable(assay.evaluate)


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
