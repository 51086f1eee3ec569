"""Scores that are 1 or 0: does the prediction match the gold answer?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.helm.scoring.text import Text

_NUMBER = re.compile(r"-?[\d,]+(?:.\d+)?")
_EXPRESSION = re.compile(r"[-+*/%\.\(\)\d]+")


def exact_match(gold: Text, prediction: Text) -> int:
    """Equal except for white space at both ends; an empty prediction never matches."""
    return int(bool(prediction.raw) and gold.stripped == prediction.stripped)


def quasi_exact_match(gold: Text, prediction: Text) -> int:
    """Equal except for case, punctuation, articles and white space."""
    return int(bool(prediction.raw) and gold.normal == prediction.normal)


def quasi_leave_articles_exact_match(gold: Text, prediction: Text) -> int:
    """As `quasi_exact_match`, but articles count."""
    return int(bool(prediction.raw) and gold.normal_with_articles == prediction.normal_with_articles)


def prefix_exact_match(gold: Text, prediction: Text) -> int:
    """The prediction begins with the gold answer."""
    return int(bool(prediction.raw) and prediction.stripped.startswith(gold.stripped))


def quasi_prefix_exact_match(gold: Text, prediction: Text) -> int:
    """The normalised prediction begins with the normalised gold answer."""
    return int(bool(prediction.raw) and prediction.normal.startswith(gold.normal))


def exact_match_indicator(gold: Text, prediction: Text) -> int:
    """The last words are equal."""
    return _equal(_last_word(gold), _last_word(prediction))


def final_number_exact_match(gold: Text, prediction: Text) -> int:
    """The last numbers are equal."""
    return _equal(_last_number(gold), _last_number(prediction))


def cleva_math_result_match(gold: Text, prediction: Text) -> int:
    """The prediction's last arithmetic expression is the gold answer."""
    expressions = _EXPRESSION.findall(prediction.raw)
    answer = expressions[-1].lstrip(")") if expressions else prediction.raw
    return _equal(gold.raw, answer.strip())


def exact_set_match(gold: Text, prediction: Text) -> float:
    """The sets that both texts name are equal."""
    return float(_named_set(gold.raw) == _predicted_set(prediction))


def iou_set_match(gold: Text, prediction: Text) -> float:
    """Intersection over union of the sets that both texts name."""
    golden, predicted = _named_set(gold.raw), _predicted_set(prediction)
    if not golden:
        return float(not predicted)
    return len(golden & predicted) / len(golden | predicted)


def f1_set_match(gold: Text, prediction: Text) -> float:
    """F1 of the sets that both texts name."""
    golden, predicted = _named_set(gold.raw), _predicted_set(prediction)
    if not golden:
        return float(not predicted)
    return 2 * len(golden & predicted) / (len(golden) + len(predicted))


def absolute_value_difference(gold: Text, prediction: Text) -> int | float | None:
    """Distance of two integers; a text that is not an integer counts as 0.

    A distance too large for an average gives ``None``; HELM fails on it.
    """
    difference = abs(_integer(gold.raw) - _integer(prediction.raw))
    return difference if difference < _LARGEST_DIFFERENCE else None


_LARGEST_DIFFERENCE = 10**150
"""Its square still fits into a float."""


def _equal(gold: str, prediction: str) -> int:
    return int(bool(prediction) and gold.strip() == prediction.strip())


def _last_word(text: Text) -> str:
    return text.raw.split(" ")[-1].strip()


def _last_number(text: Text) -> str:
    numbers = _NUMBER.findall(text.raw)
    return numbers[-1].replace(",", "") if numbers else ""


def _named_set(text: str) -> set[str]:
    if text == "Nothing.":
        return set()
    return set(text.replace(".", "").split(" is ")[-1].split(" and "))


def _predicted_set(prediction: Text) -> set[str]:
    return _named_set(prediction.raw.split("\n")[0])


def _integer(text: str) -> int | float:
    try:
        return int(text.replace(",", ""))
    except ValueError:
        return 0.0
