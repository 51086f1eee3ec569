"""Where in a text two models part: from the first token on, evenly, from some token on, at each block, more and more.

Errors vary by orders of magnitude with how sure a model is: noise of the same size in the logits moves a distribution
by about its square times the probability in doubt. So each position's error is divided by that doubt, and taken as a
logarithm. A pattern is a split of a text's positions into two; for each prompt the means of both parts are subtracted,
and Student's t asks whether that difference, over the prompts, is more than chance. All patterns share the error rate
(Bonferroni). Of those that hold, the one that explains most is named.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from assay.stats.intervals import t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from assay.identity.divergence.positions import PositionDifference

_ERROR_RATE = 0.01
_LEAST_RATIO = 3.0
"""Of the errors in the two parts: less is no pattern worth a name."""
_FLOOR = 1e-4
"""Nats that four decimals may hide."""
_DOUBT = 0.02
_FEWEST = 5
"""Prompts."""
_ALONGSIDE = 2
"""Positions that each part of a split must have."""
_BLOCKS = (8, 16, 32, 64)
NOTHING = 2e-4
"""Mean divergence, in nats, that rounding to four decimals makes."""


class Phase(StrEnum):
    """Where the error is."""

    NONE = "none"
    PROMPT = "prompt"
    """Largest at the first token, or prompts of different lengths: template, system prompt, BOS, tokenizer."""
    EVEN = "even"
    """The same at all positions: weights, precision, kernels."""
    FROM = "from"
    """Small up to a position, then larger: what only later tokens use."""
    BLOCKS = "blocks"
    """At positions that are multiples of a block: the cache's pages."""
    GROWING = "growing"
    """More and more: errors that add up in the cache, or positions."""
    UNDER_LOAD = "under load"
    """Only while other requests are answered."""
    UNKNOWN = "unknown"
    """Too few prompts to tell."""


class Pattern(msgspec.Struct, frozen=True, kw_only=True):
    """Where the error is, and how that is known."""

    phase: Phase
    start: int | None = None
    """Of :attr:`Phase.FROM`: the index of the first token with the larger error."""
    block: int | None = None
    """Of :attr:`Phase.BLOCKS`: the size."""
    ratio: float | None = None
    """How many times larger the error is there than elsewhere."""
    in_decoding: bool = False
    """Whether only the candidate's own answers show it, and not its reading of the same tokens in one prefill."""


class TextErrors(NamedTuple):
    """One prompt's errors."""

    positions: Sequence[PositionDifference]
    prompt_tokens: int | None
    """How many tokens stand before the first; None if unknown."""


class _Split(NamedTuple):
    pattern: Pattern
    parts: tuple[NDArray[np.float64], ...]
    """For each text, the weight of each position: 0 or 1, or, of a trend, between."""


def find_pattern(texts: Sequence[TextErrors]) -> Pattern:
    """Where in the texts the error is.

    Args:
        texts: one for each prompt.
    """
    mean = np.mean([each.divergence for text in texts for each in text.positions] or [0.0])
    if mean < NOTHING:
        return Pattern(phase=Phase.NONE)
    longer = [text for text in texts if len(text.positions) > 2 * _ALONGSIDE]
    if len(longer) < _FEWEST:
        return Pattern(phase=Phase.UNKNOWN)
    errors = [np.array([_relative(each) for each in text.positions]) for text in longer]
    splits = list(_splits(longer))
    quantile = t_quantile(1 - _ERROR_RATE / len(splits), len(longer) - 1)
    best, most = Pattern(phase=Phase.EVEN), 0.0
    for pattern, parts in splits:
        contrast = [_contrast(error, part) for error, part in zip(errors, parts, strict=True)]
        known = np.array([each for each in contrast if each is not None])
        if len(known) < _FEWEST:
            continue
        difference, spread = float(known.mean()), float(known.std(ddof=1)) / math.sqrt(len(known))
        is_certain = difference > math.log(_LEAST_RATIO) and difference > quantile * spread
        explained = sum(_explained(error, part) for error, part in zip(errors, parts, strict=True))
        if is_certain and explained > most:
            best, most = msgspec.structs.replace(pattern, ratio=math.exp(difference)), explained
    return best


def _relative(position: PositionDifference) -> float:
    return math.log((position.divergence + _FLOOR) / (position.doubt + _DOUBT))


def _splits(texts: Sequence[TextErrors]) -> Iterator[_Split]:
    indices = [np.array([each.index for each in text.positions], dtype=np.float64) for text in texts]
    longest = int(max(each.max() for each in indices)) + 1
    yield _Split(Pattern(phase=Phase.PROMPT), tuple((each == 0).astype(float) for each in indices))
    for start in range(_ALONGSIDE, longest - _ALONGSIDE + 1):
        pattern = Pattern(phase=Phase.FROM, start=start)
        yield _Split(pattern, tuple((each >= start).astype(float) for each in indices))
    yield _Split(Pattern(phase=Phase.GROWING), tuple(each / max(longest - 1, 1) for each in indices))
    if all(text.prompt_tokens is not None for text in texts):
        before = [text.prompt_tokens or 0 for text in texts]
        for block in _BLOCKS:
            places = [each + count for each, count in zip(indices, before, strict=True)]
            yield _Split(
                Pattern(phase=Phase.BLOCKS, block=block), tuple((each % block == 0).astype(float) for each in places)
            )


def _contrast(error: NDArray[np.float64], part: NDArray[np.float64]) -> float | None:
    """How much larger the error is in the part: the slope of a line, which of two groups is their means' difference."""
    centred = part - part.mean()
    spread = float(centred @ centred)
    return None if spread == 0 else float(centred @ error) / spread


def _explained(error: NDArray[np.float64], part: NDArray[np.float64]) -> float:
    centred = part - part.mean()
    spread = float(centred @ centred)
    return 0.0 if spread == 0 else float(centred @ error) ** 2 / spread
