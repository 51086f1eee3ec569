"""A fingerprint: what a healthy server says of the first token of fifty answers, and how much that varies by itself."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated

import msgspec

from assay._util.storage import write_whole
from assay.errors import FileFormatError
from assay.identity.top_logprobs import TOP, FirstToken, divergence
from assay.types import EndpointKind  # noqa: TC001 - msgspec resolves the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FORMAT = 1
QUIET = 1e-4
"""Nats: what rounding to four decimals makes of equal answers."""
_ERRORS = 2.33
"""Standard errors above the mean: the noise is at most that with 99 % confidence."""


FEWEST = 20
"""Prompts with an answer, without which a fingerprint says too little."""
_Logprob = Annotated[float, msgspec.Meta(ge=-1000, le=1e-3)]
_Nats = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class PromptRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt's answers, taken together."""

    prompt: str
    prompt_tokens: int | None = None
    """How many tokens the server counted, if it was always the same number."""
    top: dict[str, _Logprob]
    """By token, its mean log-probability: the logarithm of the mean probability."""
    noise: tuple[_Nats, ...]
    """Of each repetition, its divergence from the mean of the others, in nats."""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one model on one server."""

    format: int = FORMAT
    model: str
    url: str
    """The server's address, without secrets."""
    server: str | None = None
    """What the server calls itself: ``vllm``, ``llamacpp``, …"""
    endpoint: EndpointKind
    created: str
    """UTC, ISO 8601."""
    repetitions: int
    seed: int
    prompts: tuple[PromptRecord, ...]

    @property
    def noise(self) -> float:
        """Mean divergence between two answers of this server to one prompt, in nats."""
        return fmean(fmean(each.noise) for each in self.prompts)

    @property
    def noise_at_most(self) -> float:
        """The noise's upper limit with 99 % confidence, at least what rounding can make; prompts are the units."""
        means = [fmean(each.noise) for each in self.prompts]
        error = stdev(means) / math.sqrt(len(means)) if len(means) > 1 else 0.0
        return max(fmean(means) + _ERRORS * error, QUIET)

    @property
    def is_quiet(self) -> bool:
        """Whether the server gave the same answer each time, but for rounding."""
        return max(max(each.noise) for each in self.prompts) <= QUIET


def record_of(prompt: str, answers: Sequence[FirstToken]) -> PromptRecord:
    """Take a prompt's answers together, at least two."""
    counts = {answer.prompt_tokens for answer in answers}
    others = [mean_top([each.top for each in answers if each is not answer]) for answer in answers]
    return PromptRecord(
        prompt=prompt,
        prompt_tokens=counts.pop() if len(counts) == 1 else None,
        top=mean_top([answer.top for answer in answers]),
        noise=tuple(round(divergence(other, answer.top), 9) for other, answer in zip(others, answers, strict=True)),
    )


def mean_top(tops: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The likeliest tokens of the mean distribution. For a token that a list lacks, its least probability stands."""
    least = [min(top.values()) for top in tops]
    tokens = dict.fromkeys(token for top in tops for token in top)
    means = {
        token: fmean(math.exp(top.get(token, low)) for top, low in zip(tops, least, strict=True)) for token in tokens
    }
    likeliest = sorted(means, key=means.__getitem__, reverse=True)[:TOP]
    return {token: round(math.log(means[token]), 5) for token in likeliest}


def write_fingerprint(file: Path, fingerprint: Fingerprint) -> Path:
    """Write a fingerprint as JSON, one prompt a line, for version control.

    Raises:
        OutputError: it cannot be written.
    """
    head = msgspec.json.format(msgspec.json.encode(msgspec.structs.replace(fingerprint, prompts=())), indent=1)
    lines = b",\n  ".join(map(msgspec.json.encode, fingerprint.prompts))
    return write_whole(file, head.replace(b'"prompts": []', b'"prompts": [\n  ' + lines + b"\n ]") + b"\n")


def read_fingerprint(file: Path) -> Fingerprint:
    """Read a file of :func:`write_fingerprint`.

    Raises:
        FileFormatError: there is no such file, or it is no fingerprint, or a newer Assay's.
    """
    try:
        content = file.read_bytes()
        fingerprint = msgspec.json.decode(content, type=Fingerprint)
    except OSError as error:
        raise FileFormatError(f"cannot read the fingerprint {file}: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise FileFormatError(f"{file} is no fingerprint: {error}; 'assay fingerprint save' makes one") from None
    if fingerprint.format > FORMAT:
        raise FileFormatError(f"{file} has format {fingerprint.format}, of a newer Assay; this one knows {FORMAT}")
    if len({each.prompt for each in fingerprint.prompts}) < FEWEST or not all(map(_is_whole, fingerprint.prompts)):
        raise FileFormatError(
            f"{file} is no fingerprint: it lacks answers, or holds some that no server gives; 'assay fingerprint save' "
            "makes one"
        )
    return fingerprint


def _is_whole(record: PromptRecord) -> bool:
    listed = sum(map(math.exp, record.top.values()))
    return 1e-3 < listed < 1.01 and len(record.noise) > 1
