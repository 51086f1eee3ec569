"""The same prompts, cold and from the cache, alone and among many: how far the stated distributions are apart."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple

from assay.identity.selfcheck.result import Check, Finding, Outcome, cannot, fault, inconclusive, ok
from assay.identity.top_logprobs import divergence
from assay.stats.divergences import DivergenceTest, fewest_for_same

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.identity.selfcheck.answers import StatedAnswer
    from assay.identity.selfcheck.asking import Asker

BETA = 0.01
"""The greatest chance of "the same" where the mean divergence is five times what counts as rounding."""
NUMERICS = 0.005
"""Nats: mean divergence that counts as rounding on any server, four times what bfloat16 makes in another batch."""
_SIZES = 5.0
_MOST_NUMERICS = 0.05
"""Nats: no precision makes more between two prefills of one prompt."""
_ERRORS = 2.33
_TOKENS = 8
_PROMPTS = fewest_for_same(BETA) + 14
"""Rounding as bfloat16 makes it takes a dozen more than none."""
_FEW = 4
_CLEARLY = 0.05


class Difference(NamedTuple):
    """How far two answers to one prompt are apart, up to the first token in which they differ."""

    mean: float
    """Nats a token, at least."""
    first: float | None
    """Of the first token alone, which no decoding came before."""
    begins: int | None
    """The first token, from 0, whose divergence is beyond rounding."""


def difference(one: StatedAnswer | None, other: StatedAnswer | None) -> Difference | None:
    """Compare two answers; None if either has no log-probabilities."""
    if one is None or other is None:
        return None
    values = []
    for a, b in zip(one.steps, other.steps, strict=False):
        if a.listed and b.listed:
            values.append(divergence(a.top, b.top))
        if a.token != b.token:
            break
    if not values:
        return None
    begins = next((place for place, value in enumerate(values) if value > _CLEARLY), None)
    return Difference(fmean(values), values[0], begins)


async def check_conditions(asker: Asker, levels: Sequence[int], alpha: float) -> tuple[Finding, Finding]:
    """Whether the cache and other requests leave answers as they are.

    Args:
        asker: the server.
        levels: how many requests at once; each is compared with one at a time.
        alpha: the greatest chance of a fault by chance, for the cache and for each level.
    """
    prompts = asker.new_prompts(_PROMPTS)
    cold = [await asker.ask(prompt, max_tokens=_TOKENS) for prompt in prompts]
    has_switch = asker.cache_switch is not None
    if has_switch:
        for prompt in prompts:
            await asker.ask(prompt, max_tokens=1, from_cache=True)
    warm = [await asker.ask(prompt, max_tokens=_TOKENS, from_cache=True) for prompt in prompts]
    # Where the cache cannot be left out, all that is compared comes from it.
    alone = cold if has_switch else warm
    few = await asker.ask_together(prompts, _FEW, max_tokens=_TOKENS)
    pairs = [difference(a, b) for a, b in zip(alone, few, strict=True)]
    numerics = _numerics([pair.first for pair in pairs if pair is not None and pair.first is not None])
    of_cache = _judged(
        Check.CACHE,
        "asked again",
        [difference(a, b) for a, b in zip(cold, warm, strict=True)],
        min(numerics, _MOST_NUMERICS),
        alpha,
    )
    if not has_switch and of_cache.outcome is Outcome.FAULT:
        because = "answers from the cache are other ones already, and the server has no switch for its cache"
        return of_cache, cannot(Check.TOGETHER, because)
    if numerics > _MOST_NUMERICS:
        says = f"at {_FEW} at once the first token's distribution is {numerics:.2g} nats off: no rounding makes that"
        return of_cache, fault(Check.TOGETHER, says, nats=numerics)
    found = []
    for level in levels:
        if level == 1:
            continue
        together = few if level == _FEW else await asker.ask_together(prompts, level, max_tokens=_TOKENS)
        differences = [difference(a, b) for a, b in zip(alone, together, strict=True)]
        found.append(_judged(Check.TOGETHER, f"{level} at once", differences, numerics, alpha))
        if found[-1].outcome is Outcome.FAULT:
            break
    return of_cache, _worst(found)


def _numerics(values: Sequence[float]) -> float:
    """What counts as rounding: the mean divergence of two prefills under other batching, at most (99 % confidence)."""
    if len(values) < 2:
        return NUMERICS
    return max(NUMERICS, fmean(values) + _ERRORS * stdev(values) / math.sqrt(len(values)))


def _judged(
    check: Check, condition: str, differences: Sequence[Difference | None], numerics: float, alpha: float
) -> Finding:
    test = DivergenceTest(numerics, _SIZES * numerics, alpha, BETA)
    seen = [each for each in differences if each is not None]
    for each in seen:
        test.add(each.mean)
        if test.is_different:
            break
    if not seen:
        return inconclusive(check, f"{condition}: no answer had log-probabilities")
    mean = fmean(test.values)
    figures = {"nats": mean, "rounding": numerics, "answers": float(len(test.values))}
    says = f"{condition}: {mean:.2g} nats a token off"
    if test.is_different:
        begins = sorted(each.begins for each in seen if each.begins is not None)
        where = f", typically from token {begins[len(begins) // 2]} on" if begins else ""
        return fault(check, f"{says} in {len(test.values)} answers{where}; rounding makes {numerics:.2g}", **figures)
    if test.is_same:
        return ok(check, f"{says}; rounding may make {numerics:.2g}", **figures)
    return inconclusive(check, f"{says} in {len(test.values)} answers; rounding may make {numerics:.2g}", **figures)


def _worst(found: Sequence[Finding]) -> Finding:
    order = (Outcome.FAULT, Outcome.INCONCLUSIVE, Outcome.OK)
    worst = min(found, key=lambda each: order.index(each.outcome))
    if worst.outcome is not Outcome.OK:
        return worst
    return Finding(
        check=Check.TOGETHER,
        outcome=Outcome.OK,
        says="; ".join(each.says for each in found),
        figures=max(found, key=lambda each: each.figures["nats"]).figures,
    )
