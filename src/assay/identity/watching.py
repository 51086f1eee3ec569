"""Watches a server for a change: a few first tokens a visit, the evidence kept from visit to visit in a log."""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import secrets
from contextlib import contextmanager
from datetime import UTC, datetime
from statistics import fmean
from typing import TYPE_CHECKING, Literal

import msgspec

from assay._util.storage import write_error
from assay.client.api_key import read_api_key
from assay.client.openai import OpenAIModel
from assay.errors import FileFormatError, JournalLockedError, NothingMeasuredError, SpecificationError, UnjudgeableError
from assay.identity.asking import first_token, refuse_silent
from assay.identity.checking import noise_of, other_prompt, refuse_few_alternatives
from assay.identity.top_logprobs import divergence
from assay.stats.change_detector import ChangeDetector
from assay.types import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from assay.identity.fingerprint import Fingerprint
    from assay.types import ModelSpec

_YEAR = 365.25 * 24 * 60
"""Minutes."""


_BEGINNING = b'{"time":'
"""Of each line."""


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How often a server is visited, and how seldom it may be accused wrongly."""

    every: float
    """Minutes between two visits."""
    requests: int = 3
    """One-token requests a visit."""
    false_alarms: float = 1.0
    """At most so many false alarms a year, on average."""
    tolerate: float = 0.0
    """A mean divergence that counts as noise, whatever the fingerprint's own."""

    @property
    def run_length(self) -> float:
        """The mean number of requests until a false alarm."""
        return _YEAR / self.every * self.requests / self.false_alarms


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """One visit: a line of the log."""

    time: str
    verdict: Literal["quiet", "alarm", "invalid"]
    reason: str
    requests: int = 0
    """Requests that were answered."""
    divergence: float | None = None
    """Their mean divergence from the record, in nats."""
    evidence: float = 0.0
    """Of all visits since the last alarm: at 1 there is an alarm."""
    watch: str = ""
    """Hash of the record and of what else the evidence rests on."""
    state: tuple[float, ...] = ()
    """The detector's, for the next visit."""

    @property
    def exit_code(self) -> int:
        """As a gate's: 0, 1 or 4."""
        return {"quiet": 0, "alarm": 1, "invalid": 4}[self.verdict]


async def watch_async(
    fingerprint: Fingerprint, spec: ModelSpec, log: Path, options: WatchOptions, noise: Sequence[Fingerprint] = ()
) -> Visit:
    """:func:`assay.identity.watch` in an event loop."""
    at_most = noise_of(fingerprint, noise, options.tolerate)
    if not options.every > 0 or options.requests < 1 or not options.false_alarms > 0 or not options.run_length > 1:
        raise SpecificationError(
            f"{options.requests} requests every {options.every:g} minutes with {options.false_alarms:g} false alarms a "
            "year make no watch: each must be greater than 0, and fewer alarms than requests"
        )
    watch = hashlib.sha256(msgspec.json.encode((fingerprint, spec.model, at_most, options))).hexdigest()[:16]
    with _held(log) as file:
        last = _last_visit(log)
        state = last.state if last is not None and last.watch == watch else ()
        try:
            detector = ChangeDetector(at_most, options.run_length, state)
        except ValueError:
            raise FileFormatError(f"the last line of {log} is damaged; move the file away to begin anew") from None
        try:
            visit = await _visit(fingerprint, spec, options, detector)
        except UnjudgeableError as error:
            visit = Visit(time=_now(), verdict="invalid", reason=str(error), state=state)
        visit = msgspec.structs.replace(visit, watch=watch)
        _append(log, file, visit)
    return visit


async def _visit(fingerprint: Fingerprint, spec: ModelSpec, options: WatchOptions, detector: ChangeDetector) -> Visit:
    draw, failures, values = random.Random(secrets.randbits(64)), dict[int, Failure](), list[float]()
    async with OpenAIModel(spec, api_key=read_api_key(spec)) as model:
        await model.run_preflight()
        for number in range(options.requests):
            record = draw.choice(fingerprint.prompts)  # each time from all: so divergences are independent
            reply = await first_token(model, record.prompt)
            if isinstance(reply, Failure):
                failures[number] = reply
                refuse_silent(failures, answered=len(values), spec=spec)
                continue
            if (words := other_prompt(record, reply)) is not None:
                return Visit(time=_now(), verdict="alarm", reason=words, requests=len(values) + 1)
            refuse_few_alternatives(record, reply)
            values.append(divergence(record.top, reply.top))
            detector.add(values[-1])
            if detector.is_alarm:
                break
    if not values:
        raise NothingMeasuredError(f"no request was answered: {next(iter(failures.values())).message}")
    mean = fmean(values)
    return Visit(
        time=_now(),
        verdict="alarm" if detector.is_alarm else "quiet",
        reason=_reason(detector, mean, options),
        requests=len(values),
        divergence=mean,
        evidence=detector.evidence,
        state=() if detector.is_alarm else detector.state,
    )


def _reason(detector: ChangeDetector, mean: float, options: WatchOptions) -> str:
    rate = f"at most {options.false_alarms:g} false alarm{'s' if options.false_alarms > 1 else ''} a year"
    if detector.is_alarm:
        return (
            f"the server changed: mean divergence {mean:.2g} nats in this visit ({rate}); "
            "'assay fingerprint check' says how far, and the watch begins anew"
        )
    return f"mean divergence {mean:.2g} nats in this visit; evidence of a change {detector.evidence:.2g} of 1 ({rate})"


@contextmanager
def _held(log: Path) -> Iterator[int]:
    """The log, open to append to, and held against other processes."""
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise write_error(f"cannot write {log}", error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    except BlockingIOError:
        raise JournalLockedError(f"another 'assay watch' is writing {log}: visits must not overlap") from None
    finally:
        os.close(descriptor)


def _last_visit(log: Path) -> Visit | None:
    """The last whole line; one that a killed process left unfinished does not count. None if there is none."""
    *lines, unfinished = log.read_bytes().split(b"\n")
    if unfinished and not unfinished.startswith(_BEGINNING[: len(unfinished)]):
        raise FileFormatError(f"{log} is no log of 'assay watch'; name another file, or move it away")
    for line in reversed(lines):
        if line:
            try:
                return msgspec.json.decode(line, type=Visit)
            except msgspec.DecodeError as error:
                raise FileFormatError(
                    f"the last line of {log} is no visit of 'assay watch' ({error}); name another file, or move it away"
                ) from None
    return None


def _append(log: Path, descriptor: int, visit: Visit) -> None:
    content = log.read_bytes()
    try:
        os.ftruncate(descriptor, content.rfind(b"\n") + 1)
        os.write(descriptor, msgspec.json.encode(visit) + b"\n")
        os.fsync(descriptor)
    except OSError as error:
        raise write_error(f"cannot write {log}", error) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
