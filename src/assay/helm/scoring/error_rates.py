"""Error rates of speech recognition, computed by jiwer (with jieba for Chinese words)."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

from assay.errors import MissingDependencyError
from assay.helm.scoring.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable


def error_rate(measure: str) -> Callable[[Text, Text], int | float | None]:
    """One of jiwer's measures (``wer``, ``mer``, ``wip``, ``cer``) of normalised texts.

    An empty prediction scores 0, as in HELM. An empty gold text has no error rate and gives ``None``: HELM fails on it.
    """

    def score(gold: Text, prediction: Text) -> int | float | None:
        if not prediction.raw:
            return 0
        if not gold.normal_with_articles:
            return None
        rate: float = getattr(_package("jiwer"), measure)(gold.normal_with_articles, prediction.normal_with_articles)
        return rate

    return score


def chinese_error_rate(measure: str) -> Callable[[Text, Text], int | float | None]:
    """As `error_rate`, with words segmented by jieba."""
    rate = error_rate(measure)

    def score(gold: Text, prediction: Text) -> int | float | None:
        cut = _package("jieba").cut
        return rate(Text(" ".join(cut(gold.raw))), Text(" ".join(cut(prediction.raw))))

    return score


@cache
def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingDependencyError(
            f"this metric needs the package {name}, which is not installed: pip install {name}"
        ) from None
