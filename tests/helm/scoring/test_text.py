from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.helm.scoring.text import Text, stem

pytest.importorskip("nltk")

WORDS = st.sampled_from(["running", "cats", "the", "3.5", "U.S."])
TEXTS = st.lists(WORDS | st.text("abct19 ", max_size=4)).map(" ".join)


@given(st.text(st.characters(codec="utf-8"), max_size=40) | TEXTS)
def test_stems_are_rouges_tokens(text: str) -> None:
    tokenizers = pytest.importorskip("rouge_score.tokenizers")
    assert Text(text).stems == tokenizers.DefaultTokenizer(use_stemmer=True).tokenize(text)


@given(st.text(max_size=40), st.text(max_size=40))
def test_rouge_is_rouge_scores(gold: str, prediction: str) -> None:
    scorer_module = pytest.importorskip("rouge_score.rouge_scorer")
    pytest.importorskip("rapidfuzz")
    from assay.helm.scoring.scorer import SCORES

    names = {"rouge_1": "rouge1", "rouge_2": "rouge2", "rouge_l": "rougeL"}
    theirs = scorer_module.RougeScorer(list(names.values()), use_stemmer=True).score(gold, prediction)
    for ours, name in names.items():
        value = SCORES[ours](Text(gold), Text(prediction))
        assert (value, type(value)) == (theirs[name].fmeasure, type(theirs[name].fmeasure))


def test_stemming_is_remembered() -> None:
    before = stem.cache_info().hits
    assert stem("running") == stem("running") == "run"
    assert stem.cache_info().hits > before
