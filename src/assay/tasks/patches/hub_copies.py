"""Metrics of the Hugging Face hub's ``evaluate-metric`` collection, computed here: same arguments, same values."""

from __future__ import annotations

import importlib.util
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class Accuracy:
    """``accuracy``: the share of predictions that equal their reference."""

    def compute(
        self,
        *,
        predictions: Sequence[Any],
        references: Sequence[Any],
        normalize: bool = True,
        sample_weight: Any = None,
    ) -> dict[str, float]:
        """Compare labels, as scikit-learn does."""
        from sklearn.metrics import accuracy_score

        score = accuracy_score(
            _labels(references), _labels(predictions), normalize=normalize, sample_weight=sample_weight
        )
        return {"accuracy": float(score)}


class F1:
    """``f1``: the harmonic mean of precision and recall."""

    def compute(
        self,
        *,
        predictions: Sequence[Any],
        references: Sequence[Any],
        labels: Any = None,
        pos_label: int = 1,
        average: str | None = "binary",
        sample_weight: Any = None,
    ) -> dict[str, Any]:
        """Compare labels, as scikit-learn does; one value for each label where `average` is None."""
        from sklearn.metrics import f1_score

        score = f1_score(
            _labels(references),
            _labels(predictions),
            labels=labels,
            pos_label=pos_label,
            average=average,
            sample_weight=sample_weight,
        )
        return {"f1": score if np.size(score) > 1 else float(score)}


def _labels(values: Sequence[Any]) -> list[int]:
    """The hub's metrics take whole numbers, also written as text."""
    return [int(value) for value in values]


class Rouge:
    """``rouge``: overlap of n-grams and longest common subsequences, F-measure (Lin 2004).

    Raises:
        MissingDependencyError: the package rouge-score is not installed.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("rouge_score") is None:
            raise MissingDependencyError("scoring needs the package rouge-score: pip install rouge-score")

    def compute(
        self,
        *,
        predictions: Sequence[str],
        references: Sequence[Any],
        rouge_types: Sequence[str] | None = None,
        use_aggregator: bool = True,
        use_stemmer: bool = False,
        tokenizer: Any = None,
    ) -> dict[str, Any]:
        """Score texts.

        Args:
            predictions: texts.
            references: for each a text, or several of which the best counts.
            rouge_types: which scores.
            use_aggregator: give the median of bootstrapped means, the draws being the same every time; else a list of
                the texts' scores.
            use_stemmer: compare stems.
            tokenizer: splits a text into tokens.
        """
        from rouge_score import rouge_scorer, scoring, tokenizers

        class Splitting(tokenizers.Tokenizer):  # type: ignore[misc]
            def tokenize(self, text: str) -> Any:
                return tokenizer(text)

        scorer = rouge_scorer.RougeScorer(
            rouge_types=list(rouge_types or _ROUGE),
            use_stemmer=use_stemmer,
            tokenizer=None if tokenizer is None else Splitting(),
        )
        score = scorer.score_multi if isinstance(references[0], list) else scorer.score
        scores = [score(reference, text) for reference, text in zip(references, predictions, strict=False)]
        if not use_aggregator:
            return {name: [each[name].fmeasure for each in scores] for name in scores[0]}
        aggregator = scoring.BootstrapAggregator()
        for each in scores:
            aggregator.add_scores(each)
        with _same_draws():
            return {name: interval.mid.fmeasure for name, interval in aggregator.aggregate().items()}


@contextmanager
def _same_draws() -> Iterator[None]:
    state, numpy_state = random.getstate(), np.random.get_state()
    np.random.seed(0)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
