"""Is it still the same model, and does it do what it says? A server against a recorded fingerprint, and against itself.

The package may import ``models``, ``stats`` and what stands below them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay._util.event_loops import refuse_inside_event_loop
from assay.identity.asking import take_fingerprint_async
from assay.identity.checking import (
    Identity,
    IdentityOptions,
    IdentityResult,
    PromptDifference,
    check_fingerprint_async,
)
from assay.identity.divergence.prompts import NamedPrompt
from assay.identity.divergence.reference import Reference, read_reference, write_reference
from assay.identity.divergence.run import Candidate, DivergenceOptions, DivergenceReport, diverge_async
from assay.identity.fingerprint import Fingerprint, PromptRecord, read_fingerprint, write_fingerprint
from assay.identity.selfcheck import Check, Finding, Outcome, SelfcheckOptions, SelfcheckReport, selfcheck_async
from assay.identity.watching import Visit, WatchOptions, watch_async

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from assay.types import ModelSpec

__all__ = [
    "Candidate",
    "Check",
    "DivergenceOptions",
    "DivergenceReport",
    "Finding",
    "Fingerprint",
    "Identity",
    "IdentityOptions",
    "IdentityResult",
    "NamedPrompt",
    "Outcome",
    "PromptDifference",
    "PromptRecord",
    "Reference",
    "SelfcheckOptions",
    "SelfcheckReport",
    "Visit",
    "WatchOptions",
    "check_fingerprint",
    "check_itself",
    "diverge",
    "read_fingerprint",
    "read_reference",
    "take_fingerprint",
    "watch",
    "write_fingerprint",
    "write_reference",
]

USUAL_REPETITIONS = 8
THOROUGH_REPETITIONS = 24


def take_fingerprint(
    spec: ModelSpec,
    *,
    repetitions: int = USUAL_REPETITIONS,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Fingerprint:
    """Record what a server says of the first token of fifty answers, several times each, alone and among others.

    Args:
        spec: the server and model.
        repetitions: how often each prompt is asked; at least 2. More make a noisy server's record sharper.
        on_progress: called with a line on how far it is.

    Raises:
        SpecificationError: a value makes no sense.
        UnsupportedTaskError: the server gives no log-probabilities.
        UnjudgeableError: it is gone, or answers hardly anything.
    """
    refuse_inside_event_loop("take_fingerprint", "await asyncio.to_thread(take_fingerprint, …)")
    return asyncio.run(take_fingerprint_async(spec, repetitions=repetitions, on_progress=on_progress))


def check_fingerprint(
    fingerprint: Fingerprint,
    spec: ModelSpec,
    options: IdentityOptions | None = None,
    noise: Sequence[Fingerprint] = (),
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> IdentityResult:
    """Ask a server for first tokens until it is decided whether it is still the fingerprint's model.

    Prompts are drawn at random, each time from all, so that the error rates hold however long it takes.

    Args:
        fingerprint: the record of the model as it should be.
        spec: the server and model to check.
        options: error rates, and the size of a change that matters.
        noise: fingerprints of the same model that count as healthy: another precision, another machine.
        on_progress: called with a line on how far it is.

    Raises:
        SpecificationError: a value makes no sense.
        UnsupportedTaskError: the server gives no log-probabilities.
        UnjudgeableError: it is gone, or answers hardly anything.
    """
    refuse_inside_event_loop("check_fingerprint", "await asyncio.to_thread(check_fingerprint, …)")
    chosen = IdentityOptions() if options is None else options
    return asyncio.run(check_fingerprint_async(fingerprint, spec, chosen, noise, on_progress=on_progress))


def check_itself(
    spec: ModelSpec, options: SelfcheckOptions | None = None, *, on_progress: Callable[[str], None] = lambda _: None
) -> SelfcheckReport:
    """Check one server against itself: what it states of its answers, its cache, many requests at once, sampling.

    No reference is needed. It takes some 500 short answers.

    Args:
        spec: the server and model.
        options: the error rate, and how many requests at once.
        on_progress: called with a line on how far it is.

    Raises:
        SpecificationError: a value makes no sense.
        UnjudgeableError: the server is gone, or answers hardly anything.
    """
    refuse_inside_event_loop("check_itself", "await asyncio.to_thread(check_itself, …)")
    return asyncio.run(selfcheck_async(spec, options or SelfcheckOptions(), on_progress=on_progress))


def diverge(
    reference: ModelSpec | Reference,
    candidates: Sequence[tuple[str, ModelSpec]],
    prompts: Sequence[NamedPrompt] = (),
    options: DivergenceOptions | None = None,
    noise: ModelSpec | None = None,
    *,
    on_progress: Callable[[str], None] = lambda _: None,
) -> DivergenceReport:
    """Let a reference answer, read its answers with candidates token by token, and say how far they are apart.

    Args:
        reference: the server that answers, or its answers, kept by :func:`write_reference`.
        candidates: servers, each with the name that it has in the report.
        prompts: what the reference is asked; not needed for answers that were kept.
        options: how many tokens, and what is judged.
        noise: another healthy server; its error counts as noise.
        on_progress: called with a line on how far it is.

    Raises:
        SpecificationError: a value makes no sense.
        UnsupportedTaskError: a server gives no log-probabilities of a given text; before anything else is asked.
        UnjudgeableError: a server is gone, or answers nothing.
    """
    refuse_inside_event_loop("diverge", "await asyncio.to_thread(diverge, …)")
    chosen = DivergenceOptions() if options is None else options
    return asyncio.run(diverge_async(reference, candidates, prompts, chosen, noise, on_progress=on_progress))


def watch(
    fingerprint: Fingerprint, spec: ModelSpec, log: Path, options: WatchOptions, noise: Sequence[Fingerprint] = ()
) -> Visit:
    """Visit a server once: ask for a few first tokens, and append what was found to a log.

    The evidence of a change adds up from visit to visit, and begins anew after an alarm, or with another record or
    other options. If the server is gone, the log says so, and the evidence is kept.

    Args:
        fingerprint: the record of the model as it should be.
        spec: the server and model to watch.
        log: file of the visits, one a line (JSON); made if there is none.
        options: how often it is visited, and how many false alarms a year are allowed.
        noise: fingerprints of the same model that count as healthy.

    Raises:
        SpecificationError: a value makes no sense.
        UnsupportedTaskError: the server gives no log-probabilities.
        FileFormatError: the log is something else, or damaged.
        JournalLockedError: another visit is going on.
        OutputError: the log cannot be written.
    """
    refuse_inside_event_loop("watch", "await asyncio.to_thread(watch, …)")
    return asyncio.run(watch_async(fingerprint, spec, log, options, noise))
