from __future__ import annotations

import importlib.util
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import MissingDependencyError, SpecificationError, UnknownMetricError
from assay.helm.scoring.scorer import SCORES, AnswerTexts, Scorer, check_names
from assay.helm.scoring.text import Text

pytest.importorskip("nltk")
pytest.importorskip("rapidfuzz")


def score(name: str, gold: str, prediction: str) -> int | float | None:
    return SCORES[name](Text(gold), Text(prediction))


@pytest.mark.parametrize(
    ("name", "gold", "prediction", "expected"),
    [
        ("exact_match", "a ", " a", 1),
        ("exact_match", "", "", 0),
        ("quasi_exact_match", "The cat!", "cat", 1),
        ("quasi_leave_articles_exact_match", "The cat!", "cat", 0),
        ("quasi_leave_articles_exact_match", "The cat!", "the  CAT", 1),
        ("prefix_exact_match", "Yes", "Yes, Elmendorf", 1),
        ("quasi_prefix_exact_match", "the yes", "Yes, Elmendorf", 1),
        ("exact_match_indicator", "it is 4", "so 4", 1),
        ("exact_match_indicator", "4", "4 ", 0),
        ("final_number_exact_match", "is 1,015.", "1015 eggs", 1),
        ("final_number_exact_match", "none", "none", 0),
        ("final_number_exact_match", "3/4", "3/4", 1),
        ("cleva_math_result_match", "(1+2)", "so )(1+2)", 1),
        ("cleva_math_result_match", "x", "x", 1),
        ("exact_set_match", "It is a and b.", "Which is b and a\nmore", 1.0),
        ("exact_set_match", "Nothing.", "Nothing.", 1.0),
        ("iou_set_match", "a and b", "b and c", 1 / 3),
        ("f1_set_match", "a and b", "b and c", 0.5),
        ("f1_set_match", "Nothing.", "a", 0.0),
        ("absolute_value_difference", "1,000", "998", 2),
        ("absolute_value_difference", "1.5", "2", 2.0),
        ("f1_score", "a cat sat", "the cat ran", 0.5),
        ("f1_score", "the", "cat", 0.0),
        ("rouge_l", "", "cat", 0),
        ("rouge_1", "running dogs", "dog runs", 1.0),
        ("rouge_2", "one", "one", 0.0),
        ("bleu_1", "a b", "c d", 0),
        ("bleu_1", "a b c d", "a b", math.exp(-1)),
        ("bleu_4", "a b", "a b", sys.float_info.min),
        ("chinese_bleu_1", "中文", "中", math.exp(-1)),
        ("chinese_rouge_1", "中文", "文中", 1.0),
        ("math_equiv", "\\frac12", "1/2", 1.0),
        ("math_equiv", "0.5", "\\tfrac{1}{2}", 1.0),
        ("math_equiv", "x = 5", "5", 1.0),
        ("math_equiv", "10\\%", "10", 1.0),
        ("math_equiv", "5\\text{ cm}", "5", 1.0),
        ("math_equiv", "\\sqrt3", "\\sqrt{3}", 1.0),
        ("math_equiv", "\\sqrt", "\\sqrt", 1.0),
        ("math_equiv", "\\sqrt ", "\\sqrt", 0.0),
        ("math_equiv", "90^\\circ", "90", 1.0),
        ("math_equiv_chain_of_thought", "so \\boxed{\\frac{1}{2}}", "\\boxed{7} no, \\boxed{1/2}.", 1.0),
        ("math_equiv_chain_of_thought", "nothing", "boxed", 1.0),
        ("math_equiv_chain_of_thought", "\\boxed{1}", "1", 0.0),
    ],
)
def test_score(name: str, gold: str, prediction: str, expected: float) -> None:
    value = score(name, gold, prediction)
    assert value == pytest.approx(expected, rel=1e-12)
    assert type(value) is type(expected) or not isinstance(expected, int)


def test_a_difference_too_large_to_average_is_no_score() -> None:
    assert score("absolute_value_difference", "9" * 400, "0") is None


@pytest.mark.parametrize("name", ["wer_score", "mer_score", "wip_score", "cer_score"])
def test_error_rates(name: str) -> None:
    pytest.importorskip("jiwer")
    assert score(name, "a b c", "a b c") == (1.0 if name == "wip_score" else 0.0)
    assert score(name, "a b c", "") == 0
    assert score(name, "...", "a") is None


@pytest.mark.parametrize("name", sorted(name for name in SCORES if not name.startswith("chinese_") or "rouge" in name))
@given(gold=st.text(max_size=30), prediction=st.text(max_size=30))
def test_no_text_breaks_a_score(name: str, gold: str, prediction: str) -> None:
    if name.endswith(("wer_score", "mer_score", "wip_score", "cer_score")):
        pytest.importorskip("jiwer")
    if name.startswith("bleu"):
        Scorer([name], 1)  # finds punkt_tab
    value = score(name, gold, prediction)
    assert value is None or value >= 0


def test_the_best_of_several_answers_has_its_own_name() -> None:
    scorer = Scorer(["exact_match", "f1_score"], 3)
    assert scorer.stat_names == ("exact_match", "exact_match@3", "f1_score", "f1_score@3")
    assert scorer.score(AnswerTexts(("x", "y z"), ("y", "y z"))) == [0, 1, pytest.approx(2 / 3), 1.0]


def test_the_first_answer_alone_has_no_second_name() -> None:
    assert Scorer(["exact_match"], 1).score(AnswerTexts(("x",), ("y", "x"))) == [0]


@pytest.mark.parametrize(
    ("names", "error", "message"),
    [
        (["exact_mach"], UnknownMetricError, "HELM has no score 'exact_mach'; it has exact_match, "),
        (["cider"], UnknownMetricError, "it needs pycocoevalcap and Java"),
        (["f1_score", "f1_score"], SpecificationError, "'f1_score' is asked for twice"),
    ],
)
def test_names_are_checked_before_anything_runs(names: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Scorer(names, 1)


@pytest.mark.parametrize(
    ("name", "package", "to_install"),
    [("wer_score", "jiwer", r"'assay\[helm\]'"), ("chinese_cer_score", "jieba", "jieba")],
)
def test_what_error_rates_need_is_looked_for_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, to_install: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda found: None if found == package else object())
    needed = f"^{name} needs the package {package}, which is not installed: pip install {to_install}$"
    with pytest.raises(MissingDependencyError, match=needed):
        check_names(["exact_match", name])
