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
