"""Checks a server against a fingerprint, one request at a time, until it is decided whether it is still the same."""

from __future__ import annotations

import math
import random
from enum import StrEnum
from statistics import fmean, stdev
from typing import TYPE_CHECKING

import msgspec

from assay.client.api_key import read_api_key
from assay.client.openai import OpenAIModel
from assay.errors import NothingMeasuredError, SpecificationError, UnsupportedTaskError
from assay.identity.asking import first_token, refuse_silent
from assay.identity.published_marks import beside_published_marks
from assay.identity.top_logprobs import divergence
from assay.stats.divergences import DivergenceTest
from assay.types import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.identity.fingerprint import Fingerprint, PromptRecord
    from assay.identity.top_logprobs import FirstToken
    from assay.types import ModelSpec

USUAL_ERROR_RATE = 0.001
USUAL_REQUESTS = 200
_SIZES = 5.0
"""The usual size that matters, as a multiple of the noise."""
_LEAST_SIZE = 1e-3
_MOST_FAILURES = 20
_ERRORS = 2.33


class Identity(StrEnum):
    """The verdict of a check."""

    SAME = "same"
    """Any change is smaller than the size that matters."""
    DIFFERENT = "different"
    """The change is larger than the noise."""
    INCONCLUSIVE = "inconclusive"
    """The requests ended before the evidence sufficed."""

    @property
    def exit_code(self) -> int:
        """As a gate's: 0, 1 or 3."""
        return {Identity.SAME: 0, Identity.DIFFERENT: 1, Identity.INCONCLUSIVE: 3}[self]


class IdentityOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is to find out, and how surely."""

    alpha: float = USUAL_ERROR_RATE
    """The greatest chance of "different" where nothing but noise changed."""
    beta: float = USUAL_ERROR_RATE
    """The greatest chance of "same" where the change is at least ``size``."""
    size: float | None = None
    """The mean divergence, in nats, from which on a change matters; None: five times the noise, at least 0.001."""
    tolerate: float = 0.0
    """A mean divergence that counts as noise, whatever the fingerprint's own."""
    requests: int = USUAL_REQUESTS
    """The most requests."""
    seed: int = 0
    """Of the order of prompts."""


class PromptDifference(msgspec.Struct, frozen=True):
    """How far one prompt's first token is from the fingerprint's."""

    prompt: str
    divergence: float
    """Nats."""
    recorded: str
    """The fingerprint's likeliest token."""
    found: str


class IdentityResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a check."""

    verdict: Identity
    reason: str
    """In a sentence: what decided, after how many requests, with what error rate."""
    requests: int
    divergence: float | None
    """Mean divergence of the prompts asked, in nats; None if none was needed."""
    noise: float
    """What counts as noise, in nats."""
    size: float
    """From which mean divergence on a change matters, in nats."""
    largest: tuple[PromptDifference, ...] = ()
    """The prompts with the largest divergence."""


async def check_fingerprint_async(
    fingerprint: Fingerprint,
    spec: ModelSpec,
    options: IdentityOptions,
    noise: Sequence[Fingerprint] = (),
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> IdentityResult:
    """:func:`assay.check_fingerprint` in an event loop."""
    at_most = noise_of(fingerprint, noise, options.tolerate)
    size = max(_SIZES * at_most, _LEAST_SIZE) if options.size is None else options.size
    _validate(options, at_most, size)
    test = DivergenceTest(at_most, size, options.alpha, options.beta)
    draw, failures, asked = random.Random(options.seed), dict[int, Failure](), 0
    differences: dict[str, PromptDifference] = {}
    async with OpenAIModel(spec, api_key=read_api_key(spec)) as model:
        await model.run_preflight()
        while asked < options.requests:
            record = draw.choice(fingerprint.prompts)  # each time from all: so divergences are independent
            asked += 1
            reply = await first_token(model, record.prompt)
            if isinstance(reply, Failure):
                failures[asked] = reply
                refuse_silent(failures, answered=len(test.values), spec=spec)
                if len(failures) > _MOST_FAILURES:
                    raise NothingMeasuredError(f"{len(failures)} of {asked} requests failed: {reply.message}")
                continue
            if (words := other_prompt(record, reply)) is not None:
                return IdentityResult(
                    verdict=Identity.DIFFERENT,
                    reason=f"after {asked} request{'s' if asked > 1 else ''}: {words}",
                    requests=asked,
                    divergence=fmean(test.values) if test.values else None,
                    noise=at_most,
                    size=size,
                )
            refuse_few_alternatives(record, reply)
            found = divergence(record.top, reply.top)
            test.add(found)
            differences[record.prompt] = PromptDifference(
                record.prompt, found, _likeliest(record.top), _likeliest(reply.top)
            )
            on_progress(f"{asked} requests, mean divergence {fmean(test.values):.2g}")
            if test.is_different or test.is_same:
                break
    if not test.values:
        raise NothingMeasuredError(f"no request was answered: {next(iter(failures.values())).message}")
    verdict = Identity.DIFFERENT if test.is_different else Identity.SAME if test.is_same else Identity.INCONCLUSIVE
    mean = fmean(test.values)
    return IdentityResult(
        verdict=verdict,
        reason=_reason(verdict, asked, mean, at_most, size, options),
        requests=asked,
        divergence=mean,
        noise=at_most,
        size=size,
        largest=tuple(sorted(differences.values(), key=lambda each: each.divergence, reverse=True)[:3]),
    )


def noise_of(fingerprint: Fingerprint, noise: Sequence[Fingerprint], tolerate: float) -> float:
    """The mean divergence that noise makes, at most: the record's own, that of healthy others, or what is tolerated.

    Raises:
        SpecificationError: another fingerprint has hardly a prompt in common with it.
    """
    return max([fingerprint.noise_at_most, tolerate, *(distance_at_most(fingerprint, each) for each in noise)])


def distance_at_most(reference: Fingerprint, other: Fingerprint) -> float:
    """The mean divergence of another fingerprint from a reference, at most (99 % confidence), on the prompts of both.

    Raises:
        SpecificationError: they have hardly a prompt in common.
    """
    tops = {each.prompt: each.top for each in other.prompts}
    values = [divergence(each.top, tops[each.prompt]) for each in reference.prompts if each.prompt in tops]
    if len(values) < 2:
        raise SpecificationError(
            f"the fingerprint of {other.model} at {other.url} has other prompts: it shows no noise"
        )
    return fmean(values) + _ERRORS * stdev(values) / math.sqrt(len(values)) + other.noise


def _validate(options: IdentityOptions, at_most: float, size: float) -> None:
    for name in ("alpha", "beta"):
        if not 0 < (value := getattr(options, name)) < 0.5:
            raise SpecificationError(f"{name} is {value:g}; it must lie between 0 and 0.5")
    if options.requests < 1:
        raise SpecificationError(f"requests is {options.requests}; at least one is needed")
    if not at_most < size < float("inf"):
        raise SpecificationError(
            f"size is {size:g}, and noise alone makes up to {at_most:.2g}: a change of that size cannot be told from it"
        )


def other_prompt(record: PromptRecord, reply: FirstToken) -> str | None:
    """What it means that the server counts another number of prompt tokens than the record; None if it does not."""
    if not record.prompt_tokens or not reply.prompt_tokens or record.prompt_tokens == reply.prompt_tokens:
        return None
    more = reply.prompt_tokens - record.prompt_tokens
    tokens = f"{abs(more)} prompt token{'s' if abs(more) > 1 else ''} {'more' if more > 0 else 'fewer'}"
    return (
        f"the server counts {tokens} than was recorded: another chat template (or a date in it), system prompt or "
        "tokenizer, or a doubled BOS"
    )


def refuse_few_alternatives(record: PromptRecord, reply: FirstToken) -> None:
    """Refuse a server that lists too few tokens to be compared.

    Raises:
        UnsupportedTaskError: with what to do.
    """
    if 2 * len(reply.top) < len(record.top):
        raise UnsupportedTaskError(
            f"the server lists {len(reply.top)} alternatives of the first token, and the record has "
            f"{len(record.top)}: too few to compare; raise the server's limit (vLLM: --max-logprobs), or record it anew"
        )


def _reason(verdict: Identity, asked: int, mean: float, at_most: float, size: float, options: IdentityOptions) -> str:
    after = f"after {asked} one-token requests: mean divergence {mean:.2g} nats"
    if verdict is Identity.SAME:
        return (
            f"{after}; any change is below {size:.2g} (error rate {options.beta:.1%}); noise makes up to "
            f"{at_most:.2g}. Not excluded: changes that only later tokens, or other prompts, show"
        )
    if verdict is Identity.DIFFERENT:
        error_rate = f"error rate {options.alpha:.1%}"
        return (
            f"{after}, more than noise, which makes up to {at_most:.2g} ({error_rate}); "
            f"{beside_published_marks(mean)}. Something changed, which need not be wrong: "
            "--noise takes the fingerprint of another build that is healthy"
        )
    return f"{after}; noise makes up to {at_most:.2g}, a change matters from {size:.2g} on: neither is certain yet"


def _likeliest(top: dict[str, float]) -> str:
    return max(top, key=top.__getitem__)
