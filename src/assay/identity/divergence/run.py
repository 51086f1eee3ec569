"""Reads the same answers with a reference and with candidates, and compares what they say of each token."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from assay.errors import NothingMeasuredError, SpecificationError
from assay.identity.checking import Identity
from assay.identity.divergence.positions import differences
from assay.identity.divergence.reference import Reference, ReferenceText, reference_of, take_text
from assay.identity.divergence.summary import Summary, TextDifference, summarise
from assay.identity.divergence.three_way import ThreeWay, three_way
from assay.identity.reading import Generation, open_reader
from assay.stats.divergences import DivergenceTest
from assay.stats.paired import mcnemar
from assay.types import Failure, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.identity.divergence.positions import PositionDifference
    from assay.identity.divergence.prompts import NamedPrompt
    from assay.identity.positions import Position
    from assay.identity.reading import Reader

USUAL_PROMPTS = 20
USUAL_TOKENS = 24
USUAL_AT_ONCE = 8


class DivergenceOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How two models are compared."""

    tokens: int = USUAL_TOKENS
    """The most tokens of each of the reference's answers."""
    at_once: int = USUAL_AT_ONCE
    """How many prompts the candidate reads at once, the second time; 0: it reads each only once."""
    at_most: float | None = None
    """The mean divergence, in nats, that a candidate may have; None: it is measured and not judged, unless there is a
    noise reference."""
    alpha: float = 0.05
    """The greatest chance of a wrong "same", and of a wrong "different"."""


class FailedText(msgspec.Struct, frozen=True):
    """A prompt that could not be read."""

    name: str
    message: str


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """How far a candidate is from the reference."""

    name: str
    server: str
    software: str | None
    """What serves it, as far as it says."""
    way: str
    """How its log-probabilities were known."""
    verdict: Identity | None
    """None if it was measured and not judged."""
    reason: str
    summary: Summary
    noise: ThreeWay | None = None
    texts: tuple[TextDifference, ...] = ()
    failed: tuple[FailedText, ...] = ()


class DivergenceReport(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of candidates with a reference."""

    reference: Reference
    candidates: tuple[Candidate, ...]
    failed: tuple[FailedText, ...] = ()
    """Prompts that the reference did not answer."""

    @property
    def exit_code(self) -> int:
        """As a gate's: 1 if a candidate is different, else 3 if one is inconclusive, else 0."""
        verdicts = {each.verdict for each in self.candidates}
        return 1 if Identity.DIFFERENT in verdicts else 3 if Identity.INCONCLUSIVE in verdicts else 0


async def diverge_async(
    reference: ModelSpec | Reference,
    candidates: Sequence[tuple[str, ModelSpec]],
    prompts: Sequence[NamedPrompt],
    options: DivergenceOptions,
    noise: ModelSpec | None = None,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> DivergenceReport:
    """:func:`assay.identity.diverge` in an event loop."""
    _validate(options)
    failed: list[FailedText] = []
    async with AsyncExitStack() as stack:
        # Whoever cannot be read is refused before the first prompt.
        healthy = None if noise is None else await stack.enter_async_context(open_reader(noise))
        readers = [(name, await stack.enter_async_context(open_reader(spec))) for name, spec in candidates]
        if isinstance(reference, Reference):
            source = reference
        else:
            own = await stack.enter_async_context(open_reader(reference))
            source, failed = await _take(own, prompts, options.tokens, on_progress)
        noises = None if healthy is None else await _read_alone(healthy, source.texts, on_progress)
        found = [await _compare(name, reader, source, options, noises, on_progress) for name, reader in readers]
    return DivergenceReport(reference=source, candidates=tuple(found), failed=tuple(failed))


async def _take(
    reader: Reader, prompts: Sequence[NamedPrompt], tokens: int, on_progress: Callable[[str], None]
) -> tuple[Reference, list[FailedText]]:
    texts: list[ReferenceText] = []
    failed: list[FailedText] = []
    for number, prompt in enumerate(prompts):
        on_progress(f"reference: {number} of {len(prompts)} prompts")
        text = await take_text(reader, prompt, tokens)
        if isinstance(text, Failure):
            failed.append(FailedText(prompt.name, text.message))
        else:
            texts.append(text)
    if not texts:
        raise NothingMeasuredError(f"the reference ({reader.name}) answered no prompt: {failed[0].message}")
    return reference_of(reader, tuple(texts)), failed


_Read = tuple[list[TextDifference], list[FailedText]]


async def _read_alone(reader: Reader, texts: Sequence[ReferenceText], on_progress: Callable[[str], None]) -> _Read:
    found: list[TextDifference] = []
    failed: list[FailedText] = []
    for number, text in enumerate(texts):
        on_progress(f"{reader.name}: {number} of {len(texts)} prompts")
        read = await reader.read(text.prompt, text.positions)
        if isinstance(read, Failure):
            failed.append(FailedText(text.name, read.message))
            continue
        found.append(
            TextDifference(
                name=text.name,
                prompt=text.prompt,
                reference_prompt_tokens=text.prompt_tokens,
                candidate_prompt_tokens=read.prompt_tokens,
                positions=differences(text.positions, read.positions),
                candidate_tops=tuple(each.top for each in read.positions),
                candidate_ids=read.prompt_ids,
            )
        )
    if not any(each.positions for each in found):
        reason = failed[0].message if failed else "it gives no likeliest tokens"
        raise NothingMeasuredError(f"{reader.name} read no answer of the reference's: {reason}")
    return found, failed


async def _compare(
    name: str,
    reader: Reader,
    reference: Reference,
    options: DivergenceOptions,
    noises: _Read | None,
    on_progress: Callable[[str], None],
) -> Candidate:
    alone, failed = await _read_alone(reader, reference.texts, on_progress)
    wanted = {each.name for each in alone}
    texts = [each for each in reference.texts if each.name in wanted]
    loaded = await _read_together(reader, texts, options.at_once) if options.at_once else {}
    found = []
    for text, each in zip(texts, alone, strict=True):
        generated = await reader.generate(text.prompt, len(text.positions))
        decoded = differences(text.positions, _agreeing(text, generated)) if isinstance(generated, Generation) else ()
        found.append(msgspec.structs.replace(each, decoded=decoded, loaded=loaded.get(text.name, ())))
    beside = None if noises is None else three_way(found, noises[0])
    summary = summarise(found)
    verdict, reason = _judge(found, summary, beside, options, failed)
    return Candidate(
        name=name,
        server=reader.name,
        software=reader.software,
        way=reader.way,
        verdict=verdict,
        reason=reason,
        summary=summary,
        noise=beside,
        texts=tuple(found),
        failed=tuple(failed),
    )


async def _read_together(
    reader: Reader, texts: Sequence[ReferenceText], at_once: int
) -> dict[str, tuple[PositionDifference, ...]]:
    found = {}
    for start in range(0, len(texts), at_once):
        part = texts[start : start + at_once]
        for text, read in zip(
            part, await asyncio.gather(*(reader.read(text.prompt, text.positions) for text in part)), strict=True
        ):
            if not isinstance(read, Failure):
                found[text.name] = differences(text.positions, read.positions)
    return found


def _agreeing(text: ReferenceText, generated: Generation) -> list[Position]:
    """The candidate's own answer, up to and with the first token that is not the reference's."""
    found = []
    for given, own in zip(text.positions, generated.positions, strict=False):
        found.append(own)
        if own.token != given.token:
            break
    return found


def _judge(
    texts: Sequence[TextDifference],
    summary: Summary,
    beside: ThreeWay | None,
    options: DivergenceOptions,
    failed: Sequence[FailedText],
) -> tuple[Identity | None, str]:
    if options.at_most is None and beside is None:
        return None, "measured; --at-most NATS or --noise-reference URL judges it"
    if summary.other_prompts:
        counts = f"{summary.other_prompts} of {summary.texts} prompts have another number of tokens"
        return Identity.DIFFERENT, f"{counts}: another chat template, system prompt or tokenizer, or a doubled BOS"
    error_rate = f"(error rate {options.alpha:.1%})"
    mean = f"mean divergence {summary.divergence.value:.2g} nats"
    if options.at_most is not None:
        is_different, is_same = _against_limit(texts, options.at_most, options.alpha)
        what = f"{mean}, {{}} the {options.at_most:.2g} allowed"
    elif beside is not None:
        above, others = beside.above, beside.texts - beside.above
        is_different = mcnemar(above, others, "worse") <= options.alpha
        is_same = mcnemar(others, above, "worse") <= options.alpha and not beside.is_far_in_one
        counts = f"more than twice the noise's in {beside.above} of {beside.texts} prompts"
        what = f"{mean} beside the noise's {beside.noise:.2g}, {counts}: {{}} noise"
    if is_different:
        return Identity.DIFFERENT, f"{what.format('more than')} {error_rate}"
    if is_same and not failed:
        return Identity.SAME, f"{what.format('no more than')} {error_rate}"
    unread = f"{len(failed)} prompts could not be read: {failed[0].message}" if failed else "ask more prompts (-n)"
    return Identity.INCONCLUSIVE, f"{what.format('not surely more or less than')}; {unread}"


def _against_limit(texts: Sequence[TextDifference], limit: float, alpha: float) -> tuple[bool, bool]:
    """Whether the mean divergence of a prompt is surely above a limit, and whether it is surely not."""
    test = DivergenceTest(limit, limit * _NEXT, alpha, alpha)
    for text in texts:
        if text.positions:
            test.add(fmean(each.divergence for each in text.positions))
    return test.is_different, test.is_same and not test.is_different


_NEXT = 1 + 1e-9
"""The two claims, at most the limit and at least it, leave nothing between them."""


def _validate(options: DivergenceOptions) -> None:
    if options.tokens < 1:
        raise SpecificationError(f"tokens is {options.tokens}; at least one is needed")
    if options.at_once < 0:
        raise SpecificationError(f"at_once is {options.at_once}; 0 leaves it out")
    if not 0 < options.alpha < 0.5:
        raise SpecificationError(f"alpha is {options.alpha:g}; it must lie between 0 and 0.5")
    if options.at_most is not None and not 0 < options.at_most < float("inf"):
        raise SpecificationError(f"at_most is {options.at_most:g}; it must be greater than 0")
