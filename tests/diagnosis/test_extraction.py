"""What a text concludes with, against the gold answer: in every common form, and not where it concludes otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.diagnosis.extraction import Where, agrees, gold_of, missed_answer
from benchmarks.triage_extraction import measure

RIGHT = [
    ("so it is \\boxed{18}", "18", Where.BOXED),
    ("$\\boxed{\\text{B}}$, as shown. The rest follows.", "B", Where.BOXED),
    ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}", Where.BOXED),
    ("9 * 2 = 18\n#### 18", "18", Where.HASHES),
    ("**Answer: 18**", "18", Where.PHRASE),
    ("The answer is $18.00.", "18", Where.PHRASE),
    ("The answer is \\(1{,}800\\).", "1800", Where.PHRASE),
    ("The final answer is (B).", "B", Where.PHRASE),
    ("The correct option is **(C)** because of that.", "C", Where.PHRASE),
    ("Answer: B) the second", "(B)", Where.PHRASE),
    ("The answer is: 5:30 pm.", "5:30 pm", Where.PHRASE),
    ("the answer is −7", "-7", Where.PHRASE),
    ("A: 3\nA: 18", "18", Where.PHRASE),
    ("So it is\n\n**B**", "B", Where.BOLD),
    ("Considering all of this:\nvalid", "valid", Where.LAST_LINE),
    ("She makes 9 * 2 = $18 a day", "18", Where.LAST_NUMBER),
    ("A: 18\n\nQuestion: Tom has 5 apples?\nA: 5", "18", Where.BEFORE_NEXT_QUESTION),
    ("The answer is 18.\nUser: and then?\nAssistant: 9", "18", Where.BEFORE_NEXT_QUESTION),
]
WRONG = [
    ("First 18 eggs, then 3 more. The answer is 21.", "18"),
    ("18 - 1 = 17", "18"),
    ("\\boxed{17} or 18", "18"),
    ("A big dog", "A"),
    ("The answer is A or B", "A"),
    ("The answer is (A) and (B).", "A"),
    ("No, the answer is no.", "Yes"),
    ("The answer is yesterday.", "yes"),
    ("The answer is 180.", "18"),
    ("", "18"),
    ("\\boxed{x^2 + 1}", "x^2"),
    ("\\boxed{\\frac{1}{2} + y}", "\\frac{1}{2}"),
    ("The answer is unclear", "..."),
    ("I do not know.\nI'm not sure.", "I"),
    ("Question: what is 9 + 9?\nA: 18", "9"),
]


@pytest.mark.parametrize(("text", "gold", "where"), RIGHT)
def test_right_conclusions(text: str, gold: str, where: Where) -> None:
    assert missed_answer(text, gold) is where


@pytest.mark.parametrize(("text", "gold"), WRONG)
def test_other_conclusions(text: str, gold: str) -> None:
    assert missed_answer(text, gold) is None


@pytest.mark.parametrize(
    ("target", "gold"),
    [
        ("9 * 2 = 18\n#### 18", "18"),
        ("so $\\boxed{\\frac{1}{2}}$ is it", "\\frac{1}{2}"),
        (" (B) ", "(B)"),
        ("['a', 'b']", None),
        ("", None),
        ("x" * 400, None),
    ],
)
def test_the_answer_in_a_target(target: str, gold: str | None) -> None:
    assert gold_of(target) == gold


@given(st.text(max_size=300), st.sampled_from(["18", "B", "(C)", "valid", "-1.5"]))
def test_any_text_is_read(text: str, gold: str) -> None:
    missed_answer(text, gold)


@given(st.integers(-(10**9), 10**9))
def test_numbers_agree_however_they_are_written(number: int) -> None:
    for written in (f"{number:,}", f"${number}", f"{number}.0", f"**{number}**", f"\\text{{{number}}}"):
        assert agrees(written, str(number))
        assert not agrees(written, str(number + 1))


@pytest.mark.data
def test_answers_of_real_models_are_told_right_from_wrong(model_outputs_dir: Path) -> None:
    for name, row in measure(model_outputs_dir).items():
        assert row.precision >= 0.99, (name, row)
        assert row.recall >= (0.8 if "steps alone" in name else 0.99), (name, row)
    assert sum(row.missed for row in measure(model_outputs_dir).values()) > 10_000
