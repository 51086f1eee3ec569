"""The self-check: which checks there are, in which order, and what stands in the way of which."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from assay.client.api_key import read_api_key
from assay.client.openai import OpenAIModel
from assay.client.probe import probe_async
from assay.errors import NothingMeasuredError, SpecificationError
from assay.identity.selfcheck.asking import Asker, find_cache_switch
from assay.identity.selfcheck.conditions import check_conditions
from assay.identity.selfcheck.decoding import check_decoding
from assay.identity.selfcheck.endings import check_stops, check_streaming
from assay.identity.selfcheck.result import Check, Finding, Outcome, SelfcheckReport, cannot
from assay.identity.selfcheck.sampling import TESTS as SAMPLING_TESTS
from assay.identity.selfcheck.sampling import check_sampling
from assay.identity.selfcheck.stated import (
    check_logprobs,
    check_max_tokens,
    check_positions,
    check_tokens,
    check_usage,
    not_greedy,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.identity.selfcheck.stated import Counted
    from assay.types import ModelSpec

USUAL_ALPHA = 0.001
USUAL_LEVELS = (1, 4, 16, 64)
_ANSWERS = 6
_TOKENS = 16
_OTHER_TESTS = 3
"""Streaming, cache, decoding."""
_OF_LOGPROBS = (Check.CACHE, Check.TOGETHER, Check.SEED, Check.TEMPERATURE, Check.TOP_P, Check.DECODING)


class SelfcheckOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is to be checked."""

    alpha: float = USUAL_ALPHA
    """The greatest chance that a sound server is said to have any fault; all tests share it."""
    levels: tuple[int, ...] = USUAL_LEVELS
    """How many requests at once."""
    with_probe: bool = True
    """Whether to run :func:`assay.probe` first."""
    seed: int = 0
    """Of the prompts."""


async def selfcheck_async(
    spec: ModelSpec, options: SelfcheckOptions, *, on_progress: Callable[[str], None] = lambda _: None
) -> SelfcheckReport:
    """:func:`assay.identity.selfcheck` in an event loop."""
    _validate(options)
    key = read_api_key(spec)
    streamed = msgspec.structs.replace(spec, stream=True, think_end_token=None)
    async with (
        OpenAIModel(spec, api_key=key, is_probe=True) as model,
        OpenAIModel(streamed, api_key=key, is_probe=True) as streaming,
    ):
        await model.run_preflight()
        seen = None
        if options.with_probe:
            on_progress("probing")
            seen = await probe_async(spec)
        asker = Asker(model, streaming, options.seed)
        findings = await _findings(asker, options, on_progress)
        order = tuple(Check)
        return SelfcheckReport(
            url=model.address,
            model=spec.model,
            endpoint=spec.endpoint,
            alpha=options.alpha,
            findings=tuple(sorted(findings, key=lambda each: order.index(each.check))),
            requests=asker.requests,
            tokens=asker.tokens,
            probe=seen,
        )


def _validate(options: SelfcheckOptions) -> None:
    if not 0 < options.alpha < 0.5:
        raise SpecificationError(f"alpha is {options.alpha:g}; it must lie between 0 and 0.5")
    if not options.levels or min(options.levels) < 1 or max(options.levels) < 2:
        raise SpecificationError("the numbers of requests at once must be at least 1, and one of them at least 2")


async def _findings(asker: Asker, options: SelfcheckOptions, on_progress: Callable[[str], None]) -> list[Finding]:
    await find_cache_switch(asker)
    asked = [await asker.ask(prompt, max_tokens=_TOKENS) for prompt in asker.new_prompts(_ANSWERS)]
    answers = [answer for answer in asked if answer is not None]
    if not answers:
        raise NothingMeasuredError(f"no request was answered: {asker.last_failure}")
    tests = sum(level > 1 for level in options.levels) + SAMPLING_TESTS + _OTHER_TESTS
    alpha = options.alpha / tests
    found: list[Finding] = []
    if any(answer.steps for answer in answers):
        found += [check_logprobs(answers), check_positions(answers), check_tokens(answers)]
        reason = _distrusted(found[0], found[1])
        if found[0].outcome is Outcome.OK and found[1].outcome is Outcome.CANNOT:
            found.append(not_greedy(found[1]))
    else:
        asker.gives_logprobs = False
        reason = _lacking(asker.spec)
        found += [cannot(check, reason) for check in (Check.LOGPROBS, Check.POSITIONS, Check.TOKENS)]
    on_progress("counts, stop strings, streams")
    found.append(check_usage(answers, found[2], await _count(asker)))
    found.append(await check_max_tokens(asker))
    found.append(await check_stops(asker))
    found.append(await check_streaming(asker, alpha))
    if reason is not None:
        return _without_logprobs(found, reason)
    on_progress(f"cold and cached, {', '.join(map(str, options.levels))} at once")
    found += await check_conditions(asker, options.levels, alpha)
    on_progress("seeds, temperature, top_p")
    found += await check_sampling(asker, alpha)
    on_progress("answers read back")
    found.append(await check_decoding(asker, alpha))
    return found


def _distrusted(logprobs: Finding, positions: Finding) -> str | None:
    """Why what the server states of its tokens is of no use; None if it is."""
    if logprobs.outcome is not Outcome.OK:
        return f"the log-probabilities are none: {logprobs.says}"
    if positions.outcome is not Outcome.OK:
        return f"the log-probabilities are not those of the tokens: {positions.says}"
    return None


def _lacking(spec: ModelSpec) -> str:
    other = "--completions" if spec.endpoint == "chat" else "chat (without --completions)"
    return f"the server gives no log-probabilities at this endpoint; try {other}"


def _without_logprobs(found: Sequence[Finding], reason: str) -> list[Finding]:
    done = {each.check for each in found}
    return [*found, *(cannot(check, reason) for check in _OF_LOGPROBS if check not in done)]


async def _count(asker: Asker) -> Counted:
    """One prompt's tokens, by usage and by ``/tokenize``."""
    prompt = asker.new_prompt()
    answer = await asker.ask(prompt, max_tokens=1)
    if answer is None or answer.prompt_tokens is None:
        return None
    ids = await asker.ids_of(prompt)
    return None if ids is None else (answer.prompt_tokens, len(ids))
