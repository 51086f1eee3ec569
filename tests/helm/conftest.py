"""What the tests of HELM's metrics share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from assay.helm.tokenization import EncoderService

ORACLES = (
    "helm/api_classification",
    "helm/api_long_gen_perturbed",
    "helm/api_math_equiv",
    "helm/api_mcq_joint_t3_n5",
    "helm/api_unicode_multiref_n3_t2",
    "helm/run_orc_cls_task_sports_understanding_model_local_fake",
    "helm/run_orc_cls_task_sports_understanding_model_local_fakechat",
    "helm/run_orc_gsm_model_local_fake",
    "helm/run_orc_lm_model_local_fake",
    "helm/run_orc_mcq_joint_perturb_task_ruin_names_model_local_fake",
    (
        "helm/run_orc_mcq_separate_perturb_task_disambiguation_qa"
        "_method_multiple_choice_separate_original_model_local_fake"
    ),
    "helm/run_orc_mcq_separate_task_date_understanding_method_multiple_choice_separate_calibrated_model_local_fake",
    "helm/run_orc_mcq_separate_task_movie_recommendation_method_multiple_choice_separate_original_model_local_fake",
    "helm/run_orc_multi_num_outputs_3_model_local_fake",
    "helm/run_simple1_model_simple_model1",
    "helm/run_simple_mcqa_model_local_fake",
    "helm_0.2.1/flex_gsm_perturbed",
    "helm_0.2.1/flex_mcq_joint_t3",
    "helm_0.2.1/full_mcq_separate",
)
"""Runs that the real HELM evaluated: today's, and 0.2.1 as FlexLLMGen used it (``flex_*``: the first metric only)."""


@pytest.fixture(params=ORACLES)
def oracle(request: pytest.FixtureRequest, oracles_dir: Path) -> Path:
    """A run directory of the real HELM."""
    return oracles_dir / str(request.param)


class WordTokenizer:
    """The tokenizer that the recorded runs were made with."""

    pattern = re.compile(r" ?\w+| ?[^\s\w]+|\s")

    def encode(self, text: str) -> list[str]:
        return self.pattern.findall(text)

    def decode(self, tokens: Any) -> str:
        return "".join(tokens)


class CharacterTokenizer:
    """The tokenizer of HELM's simplest stand-in for a model."""

    def encode(self, text: str) -> list[str]:
        return list(text)

    def decode(self, tokens: Any) -> str:
        return "".join(tokens)


@pytest.fixture
def oracle_tokenizer(oracle: Path) -> EncoderService:
    """The tokenizer that the run was made with."""
    return EncoderService(CharacterTokenizer() if "simple1" in oracle.name else WordTokenizer())


@pytest.fixture
def tokenizer() -> EncoderService:
    """A tokenizer for states made by hand."""
    return EncoderService(WordTokenizer())
