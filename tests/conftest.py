"""Fixtures that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import pytest

_REPOSITORY = Path(__file__).resolve().parent.parent
_OUTSIDE = ("ASSAY_DATA_DIR", "ASSAY_MODEL_OUTPUTS_DIR", "ASSAY_ORACLES_DIR")
# Taken out of the environment, so that what is tested sees them only where a test says so.
_GIVEN = {variable: os.environ.pop(variable) for variable in _OUTSIDE if variable in os.environ}

# A test is not wrong because the machine is busy.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

SLOW = (
    "checks/test_early_stopping.py",
    "cli/test_run.py",
    "evaluation/test_code_runs.py",
    "evaluation/test_flow.py",
    "evaluation/test_loglikelihood_runs.py",
    "evaluation/test_replicas.py",
    "gate/test_early_stopping.py",
    "helm/metrics/test_oracles.py",
    "helm/test_run_directory.py",
    "helm/test_structs.py",
    "journal/test_damage.py",
    "lm_eval_process/test_process.py",
    "client/test_openai.py",
    "client/test_transport.py",
    "parity/test_parity.py",
    "sandbox/test_human_eval.py",
    "sandbox/test_pool.py",
    "sandbox/test_walls.py",
    "scoring/test_scoring.py",
    "stats/test_error_rates.py",
    "stats/test_simulations.py",
    "tasks/test_index.py",
    "tasks/test_library.py",
    "test_lm_eval_baselines.py",
    "test_lm_eval_command.py",
    "test_pytest_plugin.py",
    "test_runners.py",
    "triage/test_extraction.py",
    "triage/test_planted_causes.py",
    "triage/test_triage.py",
)
"""Files whose tests start processes, servers or long simulations; ``make test-quick`` leaves them out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {_REPOSITORY / "tests" / name for name in SLOW}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)


def _outside_folder(variable: str, default: str) -> Path:
    folder = Path(_GIVEN.get(variable, _REPOSITORY.parent / "shared" / default))
    if not folder.is_dir():
        pytest.skip(f"{variable} names no folder ({folder}); it holds material too large for the repository")
    return folder


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Benchmark data, laid out as on the Hugging Face hub."""
    return _outside_folder("ASSAY_DATA_DIR", "data/datasets")


@pytest.fixture(scope="session")
def model_outputs_dir() -> Path:
    """Answers that real models gave to benchmark questions."""
    return _outside_folder("ASSAY_MODEL_OUTPUTS_DIR", "data/model_outputs")


@pytest.fixture(scope="session")
def oracles_dir() -> Path:
    """Recorded runs of the real lm-eval and the real HELM."""
    return _outside_folder("ASSAY_ORACLES_DIR", "oracles")
