"""What a server generated token by token, read back in one prefill: caches and decode kernels against prefill's.

The difference of two prefills of one text, alone and among others, is what rounding makes on this server.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import UnsupportedTaskError
from assay.identity.divergence.phases import Pattern, Phase, TextErrors, find_pattern
from assay.identity.divergence.positions import PositionDifference, differences
from assay.identity.reading import Generation, Reading, Way, open_reader
from assay.identity.selfcheck.result import Check, Finding, cannot, fault, inconclusive, ok
from assay.stats.divergences import DivergenceTest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.identity.reading import Prompt, Reader
    from assay.identity.selfcheck.asking import Asker
    from assay.types import Failure

NUMERICS = 0.003
"""Nats a token: what counts as rounding between decoding and prefill on any server, thrice what bfloat16 makes."""
_MOST_NUMERICS = 0.05
_SIZES = 5.0
_BETA = 0.01
_ERRORS = 2.33
_AT_ONCE = 4
_ROUNDS = 12
_ROUNDS_READ_TWICE = 2
_TOKENS = 24


class _ReadBack(NamedTuple):
    prompt: Prompt
    generated: Generation
    read: Reading


async def check_decoding(asker: Asker, alpha: float) -> Finding:
    """Whether what is stated of generated tokens is what a prefill of the same tokens says.

    Args:
        asker: the server; its log-probabilities are right.
        alpha: the greatest chance of a fault by chance.
    """
    try:
        async with open_reader(asker.spec) as reader:
            if reader.way is Way.GREEDY_CHAT:
                because = "the server tells no log-probabilities of a given text; vLLM's prompt_logprobs and echo do"
                return cannot(Check.DECODING, because)
            return await _check(asker, reader, alpha)
    except UnsupportedTaskError as error:
        return cannot(Check.DECODING, str(error))


async def _check(asker: Asker, reader: Reader, alpha: float) -> Finding:
    test: DivergenceTest | None = None
    rounding: list[float] = []
    errors: list[TextErrors] = []
    last = ""
    for number in range(_ROUNDS):
        is_read_twice = number < _ROUNDS_READ_TWICE
        answers = await _generate_and_read(asker, reader, at_once=1 if is_read_twice else _AT_ONCE)
        done = [each for each in answers if isinstance(each, _ReadBack)]
        last = next((each for each in answers if isinstance(each, str)), last)
        if is_read_twice:
            again = await asyncio.gather(*(reader.read(each.prompt, each.generated.positions) for each in done))
            rounding += [
                _mean(found)
                for each, other in zip(done, again, strict=True)
                if isinstance(other, Reading) and (found := differences(each.read.positions, other.positions))
            ]
        texts = [
            TextErrors(found, each.generated.prompt_tokens)
            for each in done
            if (found := differences(each.read.positions, each.generated.positions))
        ]
        errors += texts
        if number == _ROUNDS_READ_TWICE - 1:
            test = DivergenceTest(numerics := _numerics(rounding), _SIZES * numerics, alpha, _BETA)
            texts = errors
        if test is not None:
            for text in texts:
                test.add(_mean(text.positions))
            if test.is_different or test.is_same:
                break
    if test is None or not test.values:
        return cannot(Check.DECODING, f"no answer could be read back by {reader.way}: {last}")
    return _judged(test, _numerics(rounding), rounding, find_pattern(errors), reader.way)


async def _generate_and_read(asker: Asker, reader: Reader, *, at_once: int) -> list[_ReadBack | str]:
    """Some answers, each generated alone, and read back so many at once; or why there is none."""
    prompts = [asker.put(asker.new_prompt()) for _ in range(_AT_ONCE)]
    generated = [await reader.generate(prompt, _TOKENS) for prompt in prompts]
    found: list[_ReadBack | str] = []
    for start in range(0, _AT_ONCE, at_once):
        part = slice(start, start + at_once)
        found += await asyncio.gather(*map(partial(_read_back, reader), prompts[part], generated[part]))
    asker.requests += 2 * _AT_ONCE
    asker.tokens += sum(len(each.positions) for each in generated if isinstance(each, Generation))
    return found


async def _read_back(reader: Reader, prompt: Prompt, generated: Generation | Failure) -> _ReadBack | str:
    if not isinstance(generated, Generation):
        return generated.message
    read = await reader.read(prompt, generated.positions)
    return _ReadBack(prompt, generated, read) if isinstance(read, Reading) else read.message


def _mean(texts: Sequence[PositionDifference]) -> float:
    return fmean(each.divergence for each in texts)


def _numerics(rounding: Sequence[float]) -> float:
    if len(rounding) < 2:
        return NUMERICS
    upper = fmean(rounding) + _ERRORS * stdev(rounding) / math.sqrt(len(rounding))
    return min(max(NUMERICS, upper), _MOST_NUMERICS)


def _judged(test: DivergenceTest, numerics: float, rounding: Sequence[float], pattern: Pattern, way: Way) -> Finding:
    count, mean = len(test.values), fmean(test.values)
    prefills = fmean(rounding) if rounding else 0.0
    figures = {"nats": mean, "two_prefills": prefills, "rounding": numerics, "answers": float(count)}
    says = (
        f"{mean:.2g} nats a token off in {count} answers; two prefills of one text differ by {prefills:.2g} "
        f"(read by {way})"
    )
    if test.is_different:
        places = {"begins": pattern.start, "block": pattern.block}
        figures |= {name: float(place) for name, place in places.items() if place is not None}
        return fault(Check.DECODING, f"{_where(pattern)}: {says}", **figures)
    if test.is_same:
        return ok(Check.DECODING, says, **figures)
    return inconclusive(Check.DECODING, f"{says}; rounding may make {numerics:.2g}", **figures)


def _where(pattern: Pattern) -> str:
    if pattern.phase is Phase.BLOCKS:
        return f"at every place of the sequence that is a multiple of {pattern.block}"
    if pattern.phase is Phase.FROM:
        return f"from token {pattern.start} of the answer on"
    return "more and more" if pattern.phase is Phase.GROWING else "throughout the answer"
