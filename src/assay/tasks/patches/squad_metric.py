"""SQuAD 2.0's metric, with the values of the hub's ``squad_v2``.

Rajpurkar, Jia, Liang: Know What You Don't Know: Unanswerable Questions for SQuAD (arXiv 1806.03822), and the evaluation
script published with it: https://rajpurkar.github.io/SQuAD-explorer/
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class SquadV2:
    """The metric ``squad_v2`` of the Hugging Face hub: same arguments, same values."""

    name = "squad_v2"

    def compute(
        self,
        *,
        predictions: Sequence[Mapping[str, Any]],
        references: Sequence[Mapping[str, Any]],
        no_answer_threshold: float = 1.0,
    ) -> dict[str, Any]:
        """Score answers to questions of which some have none.

        Args:
            predictions: ``id``, ``prediction_text`` and ``no_answer_probability`` of each.
            references: ``id`` and ``answers``, whose ``text`` lists the right ones; empty where there is no answer.
            no_answer_threshold: a prediction whose probability of no answer is greater counts as none.

        Returns:
            Percentages: ``exact`` and ``f1``; the same with ``HasAns_`` and ``NoAns_`` for questions with and without
            answers, where there are any; ``best_exact`` and ``best_f1`` at the best threshold, which stands beside them
            as ``best_exact_thresh`` and ``best_f1_thresh``; and numbers of questions, ``total``.
        """
        texts = {each["id"]: each["prediction_text"] for each in predictions}
        doubts = {each["id"]: each["no_answer_probability"] for each in predictions}
        answers = {each["id"]: list(each["answers"]["text"]) for each in references}
        raw = {
            name: {key: _best(measure, texts[key], right) for key, right in answers.items() if key in texts}
            for name, measure in (("exact", _exact), ("f1", _overlap))
        }
        scores = {
            name: {key: float(not answers[key]) if doubts[key] > no_answer_threshold else of[key] for key in of}
            for name, of in raw.items()
        }
        found = _means(scores, list(scores["exact"]))
        for prefix, has_answer in (("HasAns", True), ("NoAns", False)):
            asked = [key for key, right in answers.items() if bool(right) is has_answer]
            if asked:
                found |= {f"{prefix}_{name}": value for name, value in _means(scores, asked).items()}
        for name, of in raw.items():
            found[f"best_{name}"], found[f"best_{name}_thresh"] = _at_best_threshold(of, texts, doubts, answers)
        return found


def _means(scores: Mapping[str, Mapping[str, float]], keys: Sequence[str]) -> dict[str, Any]:
    total = len(keys)
    means = {name: 100.0 * sum(of[key] for key in keys) / total for name, of in scores.items()}
    return {**means, "total": total}


def _at_best_threshold(
    scores: Mapping[str, float],
    texts: Mapping[str, str],
    doubts: Mapping[str, float],
    answers: Mapping[str, Sequence[str]],
) -> tuple[float, float]:
    """The highest score that any threshold gives, and the least such threshold.

    Below all doubts every prediction counts as none, which is right where there is no answer. As the threshold rises
    predictions count one by one, the least doubtful first.
    """
    current: float = sum(not right for right in answers.values())
    best, threshold = current, 0.0
    for key in sorted(doubts, key=lambda key: doubts[key]):
        if key not in scores:
            continue
        if answers[key]:
            current += scores[key]
        elif texts[key]:
            current -= 1
        if current > best:
            best, threshold = current, doubts[key]
    return 100.0 * best / len(scores), threshold


def _best(measure: Any, text: str, answers: Sequence[str]) -> float:
    """Against the most favourable answer; one of nothing but articles and punctuation is none."""
    right = [answer for answer in answers if _plain(answer)] or [""]
    return max(float(measure(answer, text)) for answer in right)


def _exact(answer: str, text: str) -> bool:
    return _plain(answer) == _plain(text)


def _overlap(answer: str, text: str) -> float:
    """F1 of the words that both have."""
    expected, said = _plain(answer).split(), _plain(text).split()
    if not expected or not said:
        return float(expected == said)
    common = (Counter(expected) & Counter(said)).total()
    if not common:
        return 0.0
    precision, recall = common / len(said), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def _plain(text: str) -> str:
    """Lower case, without punctuation and articles, words apart by one blank."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())
