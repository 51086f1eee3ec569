"""Scores predictions by the score names of HELM's basic generation metric."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Sequence
from typing import NamedTuple

from assay.errors import MissingDependencyError, SpecificationError, UnknownMetricError
from assay.helm.scoring import matching, mathematics, overlap
from assay.helm.scoring.code import CODE_SCORES
from assay.helm.scoring.error_rates import chinese_error_rate, error_rate
from assay.helm.scoring.nltk_package import import_nltk
from assay.helm.scoring.text import Text

Score = int | float | None
ScoreFunction = Callable[[Text, Text], Score]

SCORES: dict[str, ScoreFunction] = {
    "exact_match": matching.exact_match,
    "quasi_exact_match": matching.quasi_exact_match,
    "quasi_leave_articles_exact_match": matching.quasi_leave_articles_exact_match,
    "prefix_exact_match": matching.prefix_exact_match,
    "quasi_prefix_exact_match": matching.quasi_prefix_exact_match,
    "exact_match_indicator": matching.exact_match_indicator,
    "final_number_exact_match": matching.final_number_exact_match,
    "exact_set_match": matching.exact_set_match,
    "iou_set_match": matching.iou_set_match,
    "f1_set_match": matching.f1_set_match,
    "math_equiv": mathematics.math_equiv,
    "math_equiv_chain_of_thought": mathematics.math_equiv_chain_of_thought,
    "f1_score": overlap.f1_score,
    "rouge_1": overlap.rouge_n("stems", 1),
    "rouge_2": overlap.rouge_n("stems", 2),
    "rouge_l": overlap.rouge_l,
    "bleu_1": overlap.bleu("words", 1),
    "bleu_4": overlap.bleu("words", 4),
    "chinese_bleu_1": overlap.bleu("characters", 1),
    "chinese_rouge_1": overlap.rouge_n("characters", 1),
    "chinese_rouge_2": overlap.rouge_n("characters", 2),
    "cleva_math_result_match": matching.cleva_math_result_match,
    "absolute_value_difference": matching.absolute_value_difference,
    "wer_score": error_rate("wer"),
    "mer_score": error_rate("mer"),
    "wip_score": error_rate("wip"),
    "cer_score": error_rate("cer"),
    "chinese_wer_score": chinese_error_rate("wer"),
    "chinese_mer_score": chinese_error_rate("mer"),
    "chinese_wip_score": chinese_error_rate("wip"),
    "chinese_cer_score": chinese_error_rate("cer"),
}
"""Every score that needs no service, no download and no code written by the model."""

_NOT_NATIVE = {
    "cider": "it needs pycocoevalcap and Java",
}
_STEMMING = ("rouge_1", "rouge_2", "rouge_l")
_ERROR_RATES = ("wer_score", "mer_score", "wip_score", "cer_score")
_CHINESE = "chinese_"
_TOKENIZING = ("bleu_1", "bleu_4")
_MAX_CACHED_TEXTS = 1000
_MAX_CACHED_CHARACTERS = 100_000
"""In all cached texts together; their n-grams take about fifty times as many bytes."""


class AnswerTexts(NamedTuple):
    """The texts that one request is scored on."""

    golds: tuple[str, ...]
    """The right answers."""
    predictions: tuple[str, ...]
    """The model's answers, likeliest first."""


class Scorer:
    """Computes a list of scores for answers.

    Args:
        names: Keys of `SCORES`.
        num_outputs: The number of completions for each request. With more than one, each score also has its best value
            over all completions, named ``<name>@<num_outputs>``.

    Raises:
        UnknownMetricError: HELM has no score of that name, or only HELM computes it.
        SpecificationError: A name occurs twice.
        MissingDependencyError: A package or NLTK's punkt_tab is missing.
    """

    def __init__(self, names: Sequence[str], num_outputs: int) -> None:
        check_names(names)
        self.names = tuple(names)
        self.num_outputs = num_outputs
        self._functions = [SCORES[name] for name in names]
        self._texts: dict[str, Text] = {}
        self._characters = 0

    @property
    def stat_names(self) -> tuple[str, ...]:
        """The names of the values that `score` returns, in order."""
        return stat_names(self.names, self.num_outputs)

    def score(self, answer: AnswerTexts) -> list[Score]:
        """For each name, the best score of the first prediction over all right answers, then of all predictions."""
        golds = [self._text(gold) for gold in answer.golds]
        predictions = [Text(prediction) for prediction in answer.predictions]
        values: list[Score] = []
        for function in self._functions:
            first = [function(gold, predictions[0]) for gold in golds]
            values.append(_best(first))
            if self.num_outputs == 1:
                continue
            later = [[function(gold, prediction) for prediction in predictions[1:]] for gold in golds]
            values.append(_best([score for one, more in zip(first, later, strict=True) for score in (one, *more)]))
        return values

    def _text(self, raw: str) -> Text:
        """A cached text, since the same right answers occur in every trial and perturbation."""
        text = self._texts.get(raw)
        if text is None:
            self._characters += len(raw)
            if len(self._texts) >= _MAX_CACHED_TEXTS or self._characters > _MAX_CACHED_CHARACTERS:
                self._texts.clear()
                self._characters = len(raw)
            text = self._texts[raw] = Text(raw)
        return text


def stat_names(names: Sequence[str], num_outputs: int) -> tuple[str, ...]:
    """Names of the statistics of scores, in order."""
    if num_outputs == 1:
        return tuple(names)
    return tuple(stat for name in names for stat in (name, f"{name}@{num_outputs}"))


def _best(scores: list[Score]) -> Score:
    numbers = [score for score in scores if score is not None]
    return max(numbers) if numbers else None


def check_names(names: Sequence[str]) -> None:
    """Refuse scores that cannot be computed, before anything runs.

    Raises:
        UnknownMetricError: HELM has no score of that name, or only HELM computes it.
        SpecificationError: A name occurs twice.
        MissingDependencyError: A package or NLTK's punkt_tab is missing.
    """
    for name in names:
        if name in _NOT_NATIVE:
            raise UnknownMetricError(f"only HELM computes the score {name!r}: {_NOT_NATIVE[name]}")
        if name not in SCORES and name not in CODE_SCORES:
            raise UnknownMetricError(f"HELM has no score {name!r}; it has {', '.join((*SCORES, *CODE_SCORES))}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if list(names).count(name) > 1)
        raise SpecificationError(f"the score {twice!r} is asked for twice; once is enough")
    for name in names:
        if name.endswith(_ERROR_RATES):
            require_package("jiwer", name)
            if name.startswith(_CHINESE):
                require_package("jieba", name, "jieba")
    if any(name in _STEMMING for name in names):
        require_package("nltk", "ROUGE")
    if "rouge_l" in names:
        require_package("rapidfuzz", "ROUGE-L")
    if any(name in _TOKENIZING for name in names):
        require_package("nltk", "BLEU")
        require_word_tokenizer()


def require_word_tokenizer() -> None:
    """Check that the data of NLTK's word tokenizer is installed.

    Raises:
        MissingDependencyError: NLTK or its punkt_tab is not installed.
    """
    from assay.tasks.nltk_data import require_punkt_tab

    with contextlib.suppress(ModuleNotFoundError):  # require_punkt_tab reports it
        import_nltk()
    require_punkt_tab()


def require_package(package: str, what: str, to_install: str = "'assay[helm]'") -> None:
    """Check that a package is installed.

    Args:
        package: the package's name in Python.
        what: the feature that needs it, for the message.
        to_install: the argument of ``pip install``, for the message.

    Raises:
        MissingDependencyError: The package is not installed.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingDependencyError(
            f"{what} needs the package {package}, which is not installed: pip install {to_install}"
        )
