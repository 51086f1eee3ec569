"""What a server states of its own greedy answers: log-probabilities, tokens, counts. Chance has no part in it."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

from assay.identity.selfcheck.result import Check, Finding, cannot, fault, inconclusive, ok

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.identity.selfcheck.answers import StatedAnswer, Step
    from assay.identity.selfcheck.asking import Asker

_ROUNDING = 2e-3
_MOST = 1.01
"""Sum of probabilities, with what low precision adds."""
_NEARLY_ALL = 0.9
_LIMITS = (1, 2, 7, 16)


def check_logprobs(answers: Sequence[StatedAnswer]) -> Finding:
    """Whether lists are ordered, hold the likeliest tokens, and sum to at most 1."""
    steps = [step for answer in answers for step in answer.steps if step.listed]
    if not steps:
        return inconclusive(Check.LOGPROBS, "no answer had a token with log-probabilities")
    sums = [math.fsum(math.exp(min(each.logprob, 50.0)) for each in step.listed) for step in steps]
    figures = {"tokens": float(len(steps)), "largest_sum": max(sums)}
    positive = max(each.logprob for step in steps for each in step.listed)
    if max(sums) > _MOST or positive > _ROUNDING:
        return fault(
            Check.LOGPROBS,
            f"the probabilities listed for one position sum to {max(sums):.3g}: they are not normalised",
            **figures,
        )
    unordered = sum(not _is_ordered(step) for step in steps)
    if unordered:
        says = f"at {unordered} of {len(steps)} tokens the list is not in falling order, or leaves out a likelier token"
        return fault(Check.LOGPROBS, says, **figures)
    unequal = sum(_contradicts_itself(step) for step in steps)
    if unequal:
        return fault(
            Check.LOGPROBS,
            f"{unequal} of {len(steps)} tokens have another log-probability than in their list",
            **figures,
        )
    return ok(Check.LOGPROBS, f"{len(steps)} lists, the largest sum {max(sums):.4f}", **figures)


def _is_ordered(step: Step) -> bool:
    """Whether the list is in order (a token added to it stands first or last) and the token itself not likelier."""
    values = [each.logprob for each in step.listed]
    others = [each.logprob for each in step.listed if each.token != step.token]
    is_falling = any(all(a >= b - _ROUNDING for a, b in itertools.pairwise(row)) for row in (values, others))
    is_left_out = step.logprob is not None and step.place is None and step.logprob > max(values) + _ROUNDING
    return is_falling and not is_left_out


def _contradicts_itself(step: Step) -> bool:
    own = [each.logprob for each in step.listed if each.token == step.token]
    return bool(own) and step.logprob is not None and min(abs(each - step.logprob) for each in own) > _ROUNDING


def check_positions(answers: Sequence[StatedAnswer]) -> Finding:
    """Whether each greedy token is the likeliest one of its own list, and not of a neighbour's."""
    own = _share_likeliest(answers, 0)
    if own is None:
        return inconclusive(Check.POSITIONS, "no answer had two tokens with log-probabilities")
    shifts = {shift: share for shift in (-1, 1) if (share := _share_likeliest(answers, shift)) is not None}
    if own >= _NEARLY_ALL:
        return ok(Check.POSITIONS, f"{own:.0%} of greedy tokens are the likeliest of their list", share=own)
    shift = max(shifts, key=shifts.__getitem__)
    if shifts[shift] >= _NEARLY_ALL:
        return fault(
            Check.POSITIONS,
            f"{shifts[shift]:.0%} of greedy tokens are the likeliest of the list {'before' if shift < 0 else 'after'} "
            f"their own, {own:.0%} of their own: log-probabilities stand at the wrong position",
            share=own,
        )
    return cannot(
        Check.POSITIONS,
        f"at temperature 0 only {own:.0%} of tokens are the likeliest of their list, and no more of another's",
    )


def not_greedy(positions: Finding) -> Finding:
    """The fault of a server whose greedy tokens are the likeliest of no list."""
    says = positions.says.removeprefix("cannot, because ")
    return fault(
        Check.TEMPERATURE, f"{says}: they are drawn, or changed by a penalty or constraint of the server's own"
    )


def _share_likeliest(answers: Sequence[StatedAnswer], shift: int) -> float | None:
    """Share of tokens that are the likeliest of the list so many places after their own."""
    hits = []
    for answer in answers:
        steps = answer.steps
        for place in range(1, len(steps) - 1):
            listed = steps[place + shift].likeliest
            if listed:
                near = {each.token for each in listed if each.logprob >= listed[0].logprob - _ROUNDING}
                hits.append(steps[place].token in near)
    return sum(hits) / len(hits) if hits else None


def check_tokens(answers: Sequence[StatedAnswer]) -> Finding:
    """Whether the tokens listed make the answer's text."""
    if any(answer.has_reasoning for answer in answers):
        return cannot(Check.TOKENS, "the server gives reasoning apart, without the tokens that mark it")
    known = [answer for answer in answers if answer.steps and all(step.text is not None for step in answer.steps)]
    if not known:
        return cannot(Check.TOKENS, "the server does not tell the tokens' bytes")
    bad = [answer for answer in known if not _makes_text(answer)]
    if not bad:
        return ok(Check.TOKENS, f"in {len(known)} of {len(known)} answers")
    listed = b"".join(step.text or b"" for step in bad[0].steps).decode("utf-8", "replace")
    return fault(
        Check.TOKENS,
        f"in {len(bad)} of {len(known)} answers they do not: the text {bad[0].text[:40]!r}, the tokens {listed[:40]!r}",
    )


def _makes_text(answer: StatedAnswer) -> bool:
    """Servers leave a last, special token out of the text, a half of a character, and spaces around it."""
    parts = [step.text or b"" for step in answer.steps]
    whole = [parts, parts[:-1]] if answer.finish_reason == "stop" else [parts]
    said = answer.text.strip()
    return said in {b"".join(each).decode("utf-8", "ignore").strip() for each in whole} or said in {
        b"".join(each).decode("utf-8", "replace").strip() for each in whole
    }


Counted = tuple[int, int] | None
"""A prompt's tokens by usage and by ``/tokenize``."""


def check_usage(answers: Sequence[StatedAnswer], tokens: Finding, counted: Counted) -> Finding:
    """Whether ``usage`` counts the tokens that are listed, and those that ``/tokenize`` counts in the prompt."""
    full = [answer for answer in answers if answer.finish_reason == "length" and answer.completion_tokens is not None]
    if not any(answer.completion_tokens is not None for answer in answers):
        return fault(Check.USAGE, "the replies count no tokens")
    said = []
    if counted is not None:
        in_usage, by_tokenize = counted
        if in_usage != by_tokenize:
            return fault(
                Check.USAGE,
                f"{in_usage} prompt tokens counted where /tokenize counts {by_tokenize}",
                prompt_tokens=float(in_usage),
                tokenized=float(by_tokenize),
            )
        said.append(f"prompt tokens as /tokenize counts them ({in_usage})")
    if tokens.outcome != "ok" or not any(answer.steps for answer in full):
        if not said:
            return cannot(Check.USAGE, "there is neither /tokenize nor a list of tokens to compare with")
        return ok(Check.USAGE, f"{said[0]}; completion tokens could not be compared: no list of tokens to trust")
    wrong = [answer for answer in full if answer.completion_tokens != len(answer.steps)]
    if wrong:
        return fault(
            Check.USAGE,
            f"{wrong[0].completion_tokens} completion tokens counted where {len(wrong[0].steps)} are listed, "
            f"in {len(wrong)} of {len(full)} answers",
        )
    said.append(f"completion tokens as listed in {len(full)} answers")
    return ok(Check.USAGE, "; ".join(said))


async def check_max_tokens(asker: Asker) -> Finding:
    """Whether an answer ends at exactly ``max_tokens`` tokens, and says ``length``."""
    full = 0
    for limit in _LIMITS:
        for prompt in asker.new_prompts(2):
            answer = await asker.ask(prompt, max_tokens=limit)
            if answer is None:
                continue
            count = len(answer.steps) or answer.completion_tokens
            if count is None:
                return cannot(Check.MAX_TOKENS, "the server counts no tokens, and lists none")
            if count > limit:
                return fault(Check.MAX_TOKENS, f"{count} tokens where {limit} were allowed", tokens=count, limit=limit)
            if answer.finish_reason == "length" and count < limit:
                says = f"{count} tokens and finish_reason 'length' where {limit} were allowed"
                return fault(Check.MAX_TOKENS, says, tokens=count, limit=limit)
            if answer.finish_reason not in ("length", "stop"):
                return fault(
                    Check.MAX_TOKENS, f"finish_reason {answer.finish_reason!r} where the limit ended the answer"
                )
            full += count == limit
    if full < len(_LIMITS):
        return inconclusive(Check.MAX_TOKENS, "too few answers were long enough")
    return ok(Check.MAX_TOKENS, f"{full} answers ended at exactly {', '.join(map(str, _LIMITS))} tokens")
