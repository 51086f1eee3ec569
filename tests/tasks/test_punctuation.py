"""The filter that looks for punctuation gives what it gave, without going through all of Unicode again."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from assay.tasks.patches.punctuation import cache_punctuation

CHOICES = ["«Un pie, d’abord»", "two — feet!", "3。feet", "a+b=c"]
RESPONSES = ["it is un pie dabord", "TWO  feet", "so 3feet", "a+bc, a+b=c", "(B) of course", ": D", "", "…"]


@pytest.fixture
def _looking_once() -> Iterator[None]:
    from lm_eval.filters import extraction

    kept = vars(extraction).pop("range", None)
    yield
    vars(extraction).pop("range", None)
    if kept is not None:
        vars(extraction)["range"] = kept


def filtered(**settings: Any) -> list[list[str]]:
    from lm_eval.filters.extraction import MultiChoiceRegexFilter

    make = MultiChoiceRegexFilter(regex_pattern=r"(\([A-Z]\))", **settings)
    answers: list[list[str]] = make.apply([RESPONSES], [{"choices": CHOICES}])
    return answers


@pytest.mark.usefixtures("_looking_once")
@pytest.mark.parametrize("ignore_punctuation", [True, False])
def test_same_answers(ignore_punctuation: bool) -> None:
    settings = {"ignore_punctuation": ignore_punctuation, "ignore_case": True}
    expected = filtered(**settings)
    cache_punctuation()
    cache_punctuation()
    assert filtered(**settings) == expected
    assert (expected[0][0] == "(A)") is ignore_punctuation


@pytest.mark.usefixtures("_looking_once")
def test_a_second_application_looks_at_few_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_punctuation()
    filtered()
    looked_at = []
    category = unicodedata.category

    def noted(character: str) -> str:
        looked_at.append(character)
        return category(character)

    monkeypatch.setattr(unicodedata, "category", noted)
    filtered()
    assert 0 < len(looked_at) < 2000
