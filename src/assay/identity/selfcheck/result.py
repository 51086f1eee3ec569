"""What a self-check found."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from assay.client.probe import TITLES as PROBE_TITLES
from assay.client.probe import Capability, ProbeReport, Seen

_AMISS = {
    **dict.fromkeys(
        (
            Capability.USAGE,
            Capability.MAX_TOKENS,
            Capability.SYSTEM_PROMPT,
            Capability.STREAMING,
            Capability.SEED,
            Capability.REPEATABLE,
            Capability.REPEATABLE_TOGETHER,
            Capability.STOP,
            Capability.MANY_STOPS,
            Capability.EMPTY_STOP_LIST,
            Capability.EMPTY_STOP_STRING,
            Capability.SEVERAL_CHOICES,
            Capability.PROMPT_LIST,
            Capability.PROMPT_IDS,
            Capability.OVERFLOW_REFUSED,
            Capability.ECHO_LOGPROBS,
            Capability.PROMPT_LOGPROBS,
            Capability.CHAT_TEMPLATE,
        ),
        Seen.NO,
    ),
    Capability.UNKNOWN_MODEL: Seen.YES,
    Capability.BOS_DOUBLED: Seen.YES,
}
"""Of what a probe sees, that which a user of the server should know."""


class Check(StrEnum):
    """What is checked, each of which has its own fault."""

    LOGPROBS = "logprobs"
    POSITIONS = "positions"
    TOKENS = "tokens"
    USAGE = "usage"
    MAX_TOKENS = "max_tokens"
    STOP = "stop"
    STREAMING = "streaming"
    CACHE = "cache"
    TOGETHER = "together"
    SEED = "seed"
    TEMPERATURE = "temperature"
    TOP_P = "top_p"
    DECODING = "decoding"


TITLES: dict[Check, str] = {
    Check.LOGPROBS: "log-probabilities are ordered and sum to at most 1",
    Check.POSITIONS: "log-probabilities are of the right position",
    Check.TOKENS: "the tokens listed make the text",
    Check.USAGE: "usage counts all tokens",
    Check.MAX_TOKENS: "max_tokens is kept to exactly",
    Check.STOP: "stop strings end the answer before them",
    Check.STREAMING: "streamed answers are the same",
    Check.CACHE: "prompts from the cache give the same answers",
    Check.TOGETHER: "many requests at once give the same answers",
    Check.SEED: "seeds decide what is drawn",
    Check.TEMPERATURE: "temperature is applied",
    Check.TOP_P: "top_p is applied",
    Check.DECODING: "generated token by token as read back at once",
}


class Outcome(StrEnum):
    """What became of a check."""

    OK = "ok"
    FAULT = "fault"
    INCONCLUSIVE = "inconclusive"
    """The requests ended before the evidence sufficed."""
    CANNOT = "cannot"
    """The server lacks what the check needs, or another fault stands in its way."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one check."""

    check: Check
    outcome: Outcome
    says: str
    """In a sentence, with its figures."""
    figures: dict[str, float] = {}
    """By name, for machines."""


class SelfcheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a server was found to do by itself."""

    url: str
    model: str
    endpoint: str
    alpha: float
    """The greatest chance that a sound server is said to have any fault at all."""
    findings: tuple[Finding, ...]
    requests: int
    tokens: int
    """Generated."""
    probe: ProbeReport | None = None
    """What ``assay probe`` sees, if it was asked."""

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are faults."""
        return tuple(each for each in self.findings if each.outcome is Outcome.FAULT)

    @property
    def seen_by_probe(self) -> tuple[tuple[str, str], ...]:
        """What the probe saw not to work, with its evidence: properties of a server more often than faults."""
        findings = {} if self.probe is None else self.probe.findings
        return tuple(
            (PROBE_TITLES[name], found.evidence) for name, found in findings.items() if found.seen is _AMISS.get(name)
        )

    @property
    def summary(self) -> str:
        """In a sentence: how many faults, how sure that is, what it cost."""
        count = len(self.faults)
        named = ", ".join(each.check for each in self.faults)
        said = f"{count} fault{'s' if count != 1 else ''} ({named})" if count else "no fault found"
        for outcome in (Outcome.INCONCLUSIVE, Outcome.CANNOT):
            if left := [each.check.value for each in self.findings if each.outcome is outcome]:
                said += f"; {outcome if outcome is Outcome.INCONCLUSIVE else 'not checked'}: {', '.join(left)}"
        return (
            f"{said}. A sound server has a fault here with a chance of at most {self.alpha:.1%}. "
            f"{self.requests} requests, {self.tokens} tokens"
        )

    @property
    def exit_code(self) -> int:
        """As a gate's: 1 for a fault, else 3 if a check was inconclusive, else 0."""
        if self.faults:
            return 1
        return 3 if any(each.outcome is Outcome.INCONCLUSIVE for each in self.findings) else 0


def ok(check: Check, says: str, **figures: float) -> Finding:
    """It is as it should be."""
    return Finding(check=check, outcome=Outcome.OK, says=says, figures=figures)


def fault(check: Check, says: str, **figures: float) -> Finding:
    """It is not."""
    return Finding(check=check, outcome=Outcome.FAULT, says=says, figures=figures)


def inconclusive(check: Check, says: str, **figures: float) -> Finding:
    """The requests did not suffice."""
    return Finding(check=check, outcome=Outcome.INCONCLUSIVE, says=says, figures=figures)


def cannot(check: Check, because: str) -> Finding:
    """It could not be checked."""
    return Finding(check=check, outcome=Outcome.CANNOT, says=f"cannot, because {because}")
