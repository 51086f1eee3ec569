"""F1, precision and recall of answers as class labels, over a whole context (scikit-learn's values)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.helm.metrics.whole_run import WholeRunMetric, instance_label, moments_of
from assay.helm.scoring.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import RequestState
    from assay.helm.metrics.table import Named
    from assay.helm.stats import Moments

_AVERAGES = ("micro", "macro", "weighted", None)
_SCORES = {"f1": "f1_score", "precision": "precision_score", "recall": "recall_score"}
_Labels = tuple[list[str], list[str]]
"""True and predicted labels of one answer."""


class ClassificationMetric(WholeRunMetric):
    """Classification by generation: the answer's normalised text is the predicted class.

    Args:
        averages: How scores of classes are averaged: ``micro``, ``macro``, ``weighted``, or ``None`` for each class.
        labels: The classes; by default those of the right answers.
        scores: ``f1``, ``precision``, ``recall``.
        delimiter: Separates classes in an answer that may name several.

    Raises:
        SpecificationError: An average or score has another value.
    """

    def __init__(
        self,
        averages: Sequence[str | None] | None = None,
        labels: Sequence[str] | None = None,
        scores: Sequence[str] | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.averages = tuple(averages or ("macro", "micro"))
        self.scores = tuple(scores or ("f1",))
        self.labels = labels
        self.delimiter = delimiter
        for average in self.averages:
            if average not in _AVERAGES:
                raise SpecificationError(f"ClassificationMetric: average {average!r} is not one of {_AVERAGES}")
        for score in self.scores:
            if score not in _SCORES:
                raise SpecificationError(f"ClassificationMetric: score {score!r} is not one of {tuple(_SCORES)}")

    def digest(self, state: RequestState) -> _Labels:
        """An answer's true and predicted classes."""
        completions = state.answer.completions
        if state.output_mapping:
            raise _unsupported(state, "is multiple choice; use MultipleChoiceClassificationMetric")
        if len(completions) != 1:
            raise _unsupported(state, f"has {len(completions)} completions, and one is expected")
        correct = state.instance.all_correct_references
        if not self.delimiter and len(correct) != 1:
            raise _unsupported(state, f"has {len(correct)} right answers, and one is expected without a delimiter")
        text = completions[0].text
        predicted = text.split(self.delimiter) if self.delimiter else [text]
        return (
            [_normalize(reference.output.text) for reference in correct if reference.output.text],
            [_normalize(label) for label in predicted if label],
        )

    def summarize(self, digests: Sequence[object]) -> list[tuple[str, Moments]]:
        """Every score in every average."""
        import warnings

        from sklearn import metrics
        from sklearn.preprocessing import MultiLabelBinarizer

        labels = cast("Sequence[_Labels]", digests)
        true, predicted = [true for true, _ in labels], [predicted for _, predicted in labels]
        classes = [[_normalize(label) for label in self.labels]] if self.labels else true
        statistics: Named = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes that no answer has, and of answers that are no class
            binarizer = MultiLabelBinarizer().fit(classes)
            if not len(binarizer.classes_):
                raise UnsupportedTaskError("classification: there are no classes, because every right answer is empty")
            y_true, y_pred = binarizer.transform(true), binarizer.transform(predicted)
            for average in self.averages:
                for score in self.scores:
                    value: Any = getattr(metrics, _SCORES[score])(y_pred=y_pred, y_true=y_true, average=average)
                    if average is None:
                        # For a single class scikit-learn scores its absence first; HELM takes that for the class.
                        by_class = zip(binarizer.classes_, value, strict=False)
                        statistics += [(f"classification_{label}_{score}", float(one)) for label, one in by_class]
                    else:
                        statistics.append((f"classification_{average}_{score}", float(value)))
        return moments_of(statistics)


class MultipleChoiceClassificationMetric(WholeRunMetric):
    """Macro and micro F1 of multiple-choice answers."""

    def digest(self, state: RequestState) -> tuple[str, str]:
        """The first right answer and the chosen one."""
        correct = state.instance.all_correct_references
        if not correct:
            raise _unsupported(state, "has no right answer")
        likeliest = sorted(state.answer.completions, key=lambda completion: -completion.logprob)[0]
        predicted = likeliest.text.strip()
        if state.output_mapping is not None:
            predicted = state.output_mapping.get(predicted, predicted)
        return correct[0].output.text, predicted

    def summarize(self, digests: Sequence[object]) -> list[tuple[str, Moments]]:
        """Macro and micro F1."""
        import warnings

        from sklearn.metrics import f1_score

        labels = cast("Sequence[tuple[str, str]]", digests)
        true, predicted = [true for true, _ in labels], [predicted for _, predicted in labels]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return moments_of(
                [
                    (f"classification_{average}_f1", float(f1_score(y_pred=predicted, y_true=true, average=average)))
                    for average in ("macro", "micro")
                ]
            )


def _normalize(label: str) -> str:
    return Text(label).normal_with_articles


def _unsupported(state: RequestState, why: str) -> UnsupportedTaskError:
    return UnsupportedTaskError(f"classification: {instance_label(state.instance)} {why}")
