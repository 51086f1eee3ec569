"""Scores of the overlap of two texts: F1, ROUGE and BLEU.

ROUGE: Lin 2004, https://aclanthology.org/W04-1013; the values are those of the package rouge_score.
BLEU: Papineni et al. 2002, https://aclanthology.org/P02-1040; the values are those of NLTK's ``sentence_bleu`` with
all weight on one n-gram size and no smoothing.
"""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.helm.scoring.text import Ngrams, Text


def f1_score(gold: Text, prediction: Text) -> int | float:
    """F1 of the sets of normalised words."""
    golden, predicted = gold.normal_words, prediction.normal_words
    if not golden or not predicted:
        return 0.0
    common = len(golden & predicted)
    if not common:
        return 0
    return 1.0 / (0.5 / (common / len(predicted)) + 0.5 / (common / len(golden)))


def rouge_n(kind: str, size: int) -> Callable[[Text, Text], float]:
    """ROUGE-N's F-measure over n-grams of stems or characters."""

    def score(gold: Text, prediction: Text) -> float:
        golden, predicted = gold.ngrams(kind, size), prediction.ngrams(kind, size)
        common = _common(golden, predicted)
        return _f_measure(common / max(predicted.total(), 1), common / max(golden.total(), 1))

    return score


def rouge_l(gold: Text, prediction: Text) -> int | float:
    """ROUGE-L's F-measure: the longest common subsequence of the stems."""
    golden, predicted = gold.stems, prediction.stems
    if not golden or not predicted:
        return 0
    common = _longest_common_subsequence()(golden, predicted)
    return _f_measure(common / len(predicted), common / len(golden))


def bleu(kind: str, size: int) -> Callable[[Text, Text], int | float]:
    """BLEU with all weight on n-grams of one size."""

    def score(gold: Text, prediction: Text) -> int | float:
        if not _common(gold.ngrams(kind, 1), prediction.ngrams(kind, 1)):
            return 0
        predicted = prediction.ngrams(kind, size)
        common = _common(gold.ngrams(kind, size), predicted)
        precision = common / max(predicted.total(), 1) if common else sys.float_info.min
        return _brevity_penalty(getattr(gold, kind), getattr(prediction, kind)) * math.exp(math.log(precision))

    return score


def _common(golden: Ngrams, predicted: Ngrams) -> int:
    if len(predicted) < len(golden):
        golden, predicted = predicted, golden
    return sum(min(count, predicted[ngram]) for ngram, count in golden.items() if ngram in predicted)


def _f_measure(precision: float, recall: float) -> float:
    if precision + recall > 0:
        return 2 * precision * recall / (precision + recall)
    return 0.0


def _brevity_penalty(gold: Sequence[str], prediction: Sequence[str]) -> int | float:
    if len(prediction) > len(gold):
        return 1
    return math.exp(1 - len(gold) / len(prediction)) if prediction else 0


@cache
def _longest_common_subsequence() -> Callable[[Sequence[str], Sequence[str]], int]:
    from rapidfuzz.distance import LCSseq

    similarity: Any = LCSseq.similarity
    return similarity  # type: ignore[no-any-return]
