"""A text with its forms and n-grams for scores, each computed once."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

from assay.helm.scoring.nltk_package import import_nltk
from assay.helm.scoring.words import word_tokens

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")

Ngrams = Counter[Hashable]


class Text:
    """A text and its normal forms, computed at first use."""

    def __init__(self, raw: str) -> None:
        self.raw = raw

    @cached_property
    def stripped(self) -> str:
        """Without white space at both ends."""
        return self.raw.strip()

    @cached_property
    def normal(self) -> str:
        """Lower case, without punctuation and articles, with single spaces."""
        return " ".join(_ARTICLES.sub(" ", self._unpunctuated).split())

    @cached_property
    def normal_with_articles(self) -> str:
        """As `normal`, but with articles."""
        return " ".join(self._unpunctuated.split())

    @cached_property
    def normal_words(self) -> frozenset[str]:
        """The set of words in `normal`."""
        return frozenset(self.normal.split())

    @cached_property
    def stems(self) -> list[str]:
        """ROUGE's tokens: lower-case ASCII letters and digits, words of more than three letters stemmed."""
        return [stem(word) if len(word) > 3 else word for word in _NOT_ALPHANUMERIC.split(self.raw.lower()) if word]

    @cached_property
    def words(self) -> list[str]:
        """NLTK's word tokens."""
        return word_tokens(self.raw)

    @cached_property
    def characters(self) -> list[str]:
        """Every character as a token, as for Chinese."""
        return list(self.raw)

    def ngrams(self, kind: str, size: int) -> Ngrams:
        """Counts of the n-grams of ``stems``, ``words`` or ``characters``."""
        key = (kind, size)
        counts = self._ngrams.get(key)
        if counts is None:
            counts = self._ngrams[key] = count_ngrams(getattr(self, kind), size)
        return counts

    @cached_property
    def _ngrams(self) -> dict[tuple[str, int], Ngrams]:
        return {}

    @cached_property
    def _unpunctuated(self) -> str:
        return self.raw.lower().translate(_WITHOUT_PUNCTUATION)


def count_ngrams(tokens: Sequence[str], size: int) -> Ngrams:
    """Counts of all sequences of ``size`` tokens."""
    if size == 1:
        return Counter(tokens)
    return Counter(zip(*(tokens[start:] for start in range(size)), strict=False))


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """NLTK's Porter stem, as rouge_score takes it."""
    return str(_stemmer().stem(word))


@cache
def _stemmer() -> Any:
    import_nltk()
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()
