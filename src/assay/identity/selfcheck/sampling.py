"""Whether seeds, temperature and top_p do what they say: drawn tokens against the distribution that is stated."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from assay.identity.selfcheck.result import Check, Finding, cannot, fault, inconclusive, ok
from assay.stats.drawn_tokens import DrawnTemperature, Evidence, NucleusTest, SeedTest
from assay.types import Failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.identity.selfcheck.answers import StatedAnswer
    from assay.identity.selfcheck.asking import Asker

_TEMPERATURE = 0.5
_NEAR = 1.5
"""The temperature counts as applied once it is known within this factor."""
_TOP_P = 0.5
_BETA = 0.01
_TOKENS = 12
_AT_ONCE = 4
_MOST_ROUNDS = 16
_MOST_TRIPLES = 40
_STRICT = 0.99
_PROCESSED = 0.05
_NEUTRAL: tuple[dict[str, Any], ...] = ({"top_p": 1, "top_k": -1, "min_p": 0}, {"top_p": 1})
"""What undoes a server's own defaults; the second where it does not take the first."""
TESTS = 5
"""How many tests share the error rate here: always greedy, seeds ignored, seeds constant, temperature, top_p."""


async def check_sampling(asker: Asker, alpha: float) -> tuple[Finding, Finding, Finding]:
    """Check seeds, temperature and top_p.

    Args:
        asker: the server; its log-probabilities are right.
        alpha: the greatest chance of a fault by chance, for each of ``TESTS``.
    """
    neutral = await _neutral(asker)
    if neutral is None:
        because = f"the server refuses temperature 1 with a seed ({asker.last_failure})"
        return cannot(Check.SEED, because), cannot(Check.TEMPERATURE, because), cannot(Check.TOP_P, because)
    seed, greedy = await _check_seeds(asker, neutral, alpha)
    if greedy is not None:
        because = "temperature is not applied: nothing is drawn"
        return cannot(Check.SEED, because), greedy, cannot(Check.TOP_P, because)
    if seed.outcome == "fault" and seed.figures.get("constant"):
        because = "the server draws the same random numbers whatever the seed"
        return seed, cannot(Check.TEMPERATURE, because), cannot(Check.TOP_P, because)
    return seed, await _check_temperature(asker, neutral, alpha), await _check_top_p(asker, neutral, alpha)


async def _neutral(asker: Asker) -> dict[str, Any] | None:
    for fields in _NEUTRAL:
        reply = await asker.try_asking(asker.new_prompt(), temperature=1, max_tokens=1, **fields)
        if not isinstance(reply, Failure):
            return fields
    return None


async def _check_seeds(asker: Asker, neutral: dict[str, Any], alpha: float) -> tuple[Finding, Finding | None]:
    """The finding on seeds, and one on temperature if nothing is drawn at all."""
    test, greedy = SeedTest(alpha), Evidence(alpha)
    likeliest = drawn = 0
    for number, prompt in enumerate(asker.new_prompts(_MOST_TRIPLES)):
        await asker.ask(prompt, max_tokens=1)  # So that all answers below come from the cache, or none does.
        seeds = (10 * number + 1, 10 * number + 1, 10 * number + 2)
        first, again, other = await asyncio.gather(
            *(asker.ask(prompt, temperature=1, max_tokens=_TOKENS, **neutral, seed=seed) for seed in seeds)
        )
        if first is None or again is None or other is None:
            continue
        for step in first.steps:
            if step.listed:
                drawn += 1
                likeliest += step.place == 0
                most = min(0.999, math.exp(step.logprobs[0]))
                greedy.multiply(_STRICT / most if step.place == 0 else (1 - _STRICT) / (1 - most))
        for values, is_equal in _up_to_the_first_difference(first, again):
            test.add_equal(values, is_equal)
        for values, is_equal in _up_to_the_first_difference(first, other):
            test.add_unequal(values, is_equal)
        if greedy.is_enough:
            says = f"at temperature 1, {likeliest} of {drawn} drawn tokens are the likeliest one: nothing is drawn"
            return cannot(Check.SEED, "nothing is drawn"), fault(Check.TEMPERATURE, says, drawn_as=0.0)
        if test.is_ignored or test.is_constant or (test.is_honoured and number >= 7):
            break
    return _judged_seeds(test), None


def _judged_seeds(test: SeedTest) -> Finding:
    compared, equal = test.with_equal_seeds
    others, equal_others = test.with_unequal_seeds
    says = f"{equal} of {compared} tokens equal with equal seeds, {equal_others} of {others} with unequal ones"
    if test.is_constant:
        return fault(Check.SEED, f"{says}: seeds change nothing", constant=1.0)
    if test.is_ignored:
        return fault(Check.SEED, f"{says}, as by chance: seeds are ignored")
    if test.is_honoured:
        return ok(Check.SEED, says)
    return inconclusive(Check.SEED, says)


def _up_to_the_first_difference(one: StatedAnswer, other: StatedAnswer) -> list[tuple[list[float], bool]]:
    pairs: list[tuple[list[float], bool]] = []
    for a, b in zip(one.steps, other.steps, strict=False):
        if a.listed:
            pairs.append((a.logprobs, a.token == b.token))
        if a.token != b.token:
            break
    return pairs


async def _drawn(asker: Asker, **fields: Any) -> AsyncIterator[tuple[StatedAnswer, StatedAnswer]]:
    """Greedy first tokens, and drawn answers to the same prompts, each with a seed of its own."""
    for number in range(_MOST_ROUNDS):
        prompts = asker.new_prompts(_AT_ONCE)
        greedy = await asyncio.gather(*(asker.ask(prompt, max_tokens=1) for prompt in prompts))
        drawn = await asyncio.gather(
            *(
                asker.ask(prompt, max_tokens=_TOKENS, **{**fields, "seed": 1000 + _AT_ONCE * number + place})
                for place, prompt in enumerate(prompts)
            )
        )
        for plain, answer in zip(greedy, drawn, strict=True):
            if plain is not None and answer is not None and plain.steps and answer.steps:
                yield plain, answer


async def _check_temperature(asker: Asker, neutral: dict[str, Any], alpha: float) -> Finding:
    raw, tempered = DrawnTemperature(alpha), DrawnTemperature(alpha)
    distances = [0.0, 0.0]
    async for plain, answer in _drawn(asker, temperature=_TEMPERATURE, **neutral):
        for place, distance in enumerate(_distances(plain, answer)):
            distances[place] += distance
        for step in answer.steps:
            if step.place is not None:
                raw.add(step.logprobs, step.place)
                tempered.add([_TEMPERATURE * value for value in step.logprobs], step.place)
        test = raw if distances[0] <= distances[1] else tempered
        low, high = test.interval
        if test.excludes(_TEMPERATURE) or _TEMPERATURE / _NEAR <= low <= high <= _TEMPERATURE * _NEAR:
            break
    test = raw if distances[0] <= distances[1] else tempered
    low, high = test.interval
    says = f"{test.tokens} tokens drawn at temperature {_TEMPERATURE} are as drawn at {test.likeliest:.2f}"
    figures = {"tokens": float(test.tokens), "drawn_as": test.likeliest}
    if low <= high:
        says = f"{says} ({low:.2f} to {high:.2f})"
        figures |= {"low": low, "high": high}
    if test.excludes(_TEMPERATURE):
        return fault(Check.TEMPERATURE, says, **figures)
    if _TEMPERATURE / _NEAR <= low <= high <= _TEMPERATURE * _NEAR:
        return ok(Check.TEMPERATURE, says, **figures)
    return inconclusive(Check.TEMPERATURE, says, **figures)


def _distances(plain: StatedAnswer, drawn: StatedAnswer) -> tuple[float, float]:
    """How far the first token's stated distribution is from the model's, and from the model's at the temperature."""
    model, stated = plain.steps[0].top, drawn.steps[0].top
    shared = model.keys() & stated.keys()
    best = max(shared, key=model.__getitem__, default=None)
    if best is None:
        return 0.0, 0.0
    gaps = [(model[token] - model[best], stated[token] - stated[best]) for token in shared]
    return sum(abs(a - b) for a, b in gaps), sum(abs(a / _TEMPERATURE - b) for a, b in gaps)


async def _check_top_p(asker: Asker, neutral: dict[str, Any], alpha: float) -> Finding:
    test = NucleusTest(_TOP_P, alpha, _BETA)
    async for plain, answer in _drawn(asker, temperature=1, **{**neutral, "top_p": _TOP_P}):
        of_model, stated = plain.steps[0].logprobs, answer.steps[0].logprobs
        if of_model and stated and abs(of_model[0] - stated[0]) > _PROCESSED:
            return cannot(Check.TOP_P, "the server states log-probabilities after top_p, not the model's own")
        for step in answer.steps:
            if step.listed:
                test.add(step.logprobs, step.place)
        if test.is_ignored or test.is_applied:
            break
    says = f"{test.beyond} of {test.tokens} tokens drawn with top_p {_TOP_P} lie beyond it"
    figures = {"tokens": float(test.tokens), "beyond": float(test.beyond)}
    if test.is_ignored:
        return fault(Check.TOP_P, says, **figures)
    return ok(Check.TOP_P, says, **figures) if test.is_applied else inconclusive(Check.TOP_P, says, **figures)
