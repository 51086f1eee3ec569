"""Where answers end: at stop strings, exactly; and whether a streamed answer is the whole one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.identity.selfcheck.result import Check, Finding, fault, inconclusive, ok
from assay.stats.drawn_tokens import Evidence

if TYPE_CHECKING:
    from assay.identity.selfcheck.asking import Asker

_PROMPTS = 6
_TOKENS = 16
_ABSENT = "@@@@"
_LENGTH = 4
_FEWEST = 3
_TRIPLES = 14
_BY_CHANCE = 1 / 3
_IF_BROKEN = 0.95


async def check_stops(asker: Asker) -> Finding:
    """Whether a stop string ends the answer just before it, wherever tokens begin."""
    judged = 0
    for place, prompt in enumerate(asker.new_prompts(_PROMPTS)):
        await asker.ask(prompt, max_tokens=1)  # So that both answers below come from the cache, or neither does.
        whole = await asker.ask(prompt, max_tokens=_TOKENS)
        chosen = None if whole is None else _stop_within(whole.text, len(whole.text) // 2 + place % 3)
        if whole is None or chosen is None:
            continue
        text, (before, stop) = whole.text, chosen
        cut = await asker.ask(prompt, max_tokens=_TOKENS, stop=[_ABSENT, stop] if place % 2 else [stop])
        if cut is None:
            continue
        shown = f"{stop!r} in {text[:40]!r}"
        if cut.text.rstrip() == before.rstrip():
            judged += 1
            if cut.finish_reason != "stop":
                return fault(Check.STOP, f"finish_reason {cut.finish_reason!r} after the stop string {shown}")
        elif cut.text.startswith(before + stop):
            beyond = len(cut.text) - len(before)
            return fault(Check.STOP, f"the stop string {shown} ended the answer {beyond} characters late", late=beyond)
        elif before.startswith(cut.text):
            early = len(before) - len(cut.text)
            return fault(Check.STOP, f"the answer ended {early} characters before the stop string {shown}", late=-early)
    if judged < _FEWEST:
        return inconclusive(Check.STOP, f"only {judged} answers were the same up to the stop string as without it")
    return ok(Check.STOP, f"{judged} answers ended exactly before the string, within and between tokens")


def _stop_within(text: str, after: int) -> tuple[str, str] | None:
    """What stands before a string to stop at, and the string: not before a place, without spaces at its ends."""
    for place in range(after, len(text) - _LENGTH):
        stop = text[place : place + _LENGTH]
        before = text[: text.index(stop)]
        if stop.strip() == stop and before.strip():
            return before, stop
    return None


async def check_streaming(asker: Asker, alpha: float) -> Finding:
    """Whether streamed answers are the whole ones.

    If streaming does nothing to answers, then of three to one prompt the odd one out, where there is one, is the
    streamed one in a third of the cases, however noisy the server is.
    """
    broken = Evidence(alpha)
    odd = others = same = 0
    for prompt in asker.new_prompts(_TRIPLES):
        await asker.ask(prompt, max_tokens=1)
        first = await asker.ask(prompt, max_tokens=_TOKENS, with_logprobs=False)
        streamed = await asker.ask_streamed(prompt, max_tokens=_TOKENS)
        last = await asker.ask(prompt, max_tokens=_TOKENS, with_logprobs=False)
        if first is None or streamed is None or last is None:
            continue
        text = (streamed.reasoning or "") + (streamed.text or "")
        if first.text == text == last.text:
            same += 1
        elif first.text == last.text:
            odd += 1
            broken.multiply(_IF_BROKEN / _BY_CHANCE)
        elif text in (first.text, last.text):
            others += 1
            broken.multiply((1 - _IF_BROKEN) / (1 - _BY_CHANCE))
        if broken.is_enough:
            return fault(
                Check.STREAMING,
                f"{odd} of {odd + others + same} streamed answers differ from two whole ones that are equal: "
                f"one ends in {text[-20:]!r}, the whole ones in {first.text[-20:]!r}",
                odd=odd,
            )
    if same + others < _FEWEST:
        return inconclusive(
            Check.STREAMING, f"{asker.last_failure}" if not odd else f"{odd} differ, {same} are the same"
        )
    return ok(
        Check.STREAMING, f"{same} of {same + odd + others} the same as the whole answer, {odd} odd ones out", odd=odd
    )
