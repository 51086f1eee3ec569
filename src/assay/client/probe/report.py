"""The result of a probe."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from assay.client.server_info import ServedModel  # noqa: TC001 - msgspec resolves the annotations
from assay.errors import ServerUnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Seen(StrEnum):
    """Whether a capability was seen to work."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """Not asked, or the reply does not tell."""


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The observation of one capability."""

    seen: Seen
    evidence: str = ""
    """The evidence in a few words. It holds no secrets, but may quote the server."""
    value: int | float | str | None = None
    """A number or name, if the observation has one."""


class Capability(StrEnum):
    """What a probe checks."""

    REACHABLE = "reachable"
    MODEL_LIST = "model_list"
    MAX_LENGTH = "max_length"
    METRICS = "metrics"
    CHAT = "chat"
    COMPLETIONS = "completions"
    USAGE = "usage"
    MAX_TOKENS = "max_tokens"
    REASONING = "reasoning"
    SYSTEM_PROMPT = "system_prompt"
    STREAMING = "streaming"
    SEED = "seed"
    REPEATABLE = "repeatable"
    REPEATABLE_TOGETHER = "repeatable_together"
    STOP = "stop"
    MANY_STOPS = "many_stops"
    EMPTY_STOP_LIST = "empty_stop_list"
    EMPTY_STOP_STRING = "empty_stop_string"
    SEVERAL_CHOICES = "several_choices"
    PROMPT_LIST = "prompt_list"
    PROMPT_IDS = "prompt_ids"
    UNKNOWN_MODEL = "unknown_model"
    UNKNOWN_FIELD = "unknown_field"
    OVERFLOW_REFUSED = "overflow_refused"
    CHAT_LOGPROBS = "chat_logprobs"
    COMPLETIONS_LOGPROBS = "completions_logprobs"
    ECHO_LOGPROBS = "echo_logprobs"
    PROMPT_LOGPROBS = "prompt_logprobs"
    TOKENIZE = "tokenize"
    CHAT_TEMPLATE = "chat_template"
    BOS_DOUBLED = "bos_doubled"


TITLES: dict[Capability, str] = {
    Capability.REACHABLE: "reachable",
    Capability.MODEL_LIST: "lists its models",
    Capability.MAX_LENGTH: "tells the context length",
    Capability.METRICS: "/metrics",
    Capability.CHAT: "chat completions",
    Capability.COMPLETIONS: "completions",
    Capability.USAGE: "counts tokens (usage)",
    Capability.MAX_TOKENS: "keeps to max_tokens and says so",
    Capability.REASONING: "reasoning apart from the answer",
    Capability.SYSTEM_PROMPT: "system prompt reaches the model",
    Capability.STREAMING: "streams",
    Capability.SEED: "seed decides what is sampled",
    Capability.REPEATABLE: "temperature 0: same answer again",
    Capability.REPEATABLE_TOGETHER: "temperature 0: same among others",
    Capability.STOP: "stop string ends the answer",
    Capability.MANY_STOPS: "more than 4 stop strings",
    Capability.EMPTY_STOP_LIST: "empty list of stop strings",
    Capability.EMPTY_STOP_STRING: "empty stop string is harmless",
    Capability.SEVERAL_CHOICES: "n > 1",
    Capability.PROMPT_LIST: "list of prompts",
    Capability.PROMPT_IDS: "prompt as token ids",
    Capability.UNKNOWN_MODEL: "takes an unknown model's name",
    Capability.UNKNOWN_FIELD: "takes an unknown field",
    Capability.OVERFLOW_REFUSED: "refuses a prompt beyond the context",
    Capability.CHAT_LOGPROBS: "logprobs in chat",
    Capability.COMPLETIONS_LOGPROBS: "logprobs in completions",
    Capability.ECHO_LOGPROBS: "prompt's logprobs by echo, right",
    Capability.PROMPT_LOGPROBS: "prompt_logprobs, right",
    Capability.TOKENIZE: "/tokenize",
    Capability.CHAT_TEMPLATE: "chat template applied",
    Capability.BOS_DOUBLED: "BOS doubled in rendered prompts",
}
"""The capabilities' names for people."""

Observations = dict[Capability, Observation]


class ProbeReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server can do, as far as it was seen."""

    url: str
    """The server's root."""
    model: str | None
    """The model that was asked; None if there was none to ask."""
    answered_as: str | None = None
    """The model that answers name, if it is another one."""
    software: str | None = None
    """``vllm``, ``llama.cpp``, …, where the server tells."""
    version: str | None = None
    models: tuple[ServedModel, ...] = ()
    max_length: int | None = None
    """The context length in tokens that the server reports."""
    findings: Observations = {}
    """All capabilities; after a quick probe only those that it checked."""
    requests: int = 0
    """Number of requests sent."""
    seconds: float = 0.0

    @property
    def is_reachable(self) -> bool:
        """Whether the server answered at all."""
        return self[Capability.REACHABLE].seen is not Seen.NO

    def __getitem__(self, capability: Capability) -> Observation:
        """The observation of a capability; unknown if it was not checked."""
        return self.findings.get(capability, NOT_ASKED)


def yes(evidence: str = "", value: float | str | None = None) -> Observation:
    """It was seen to work."""
    return Observation(Seen.YES, evidence, value)


def no(evidence: str = "", value: float | str | None = None) -> Observation:
    """It was seen not to work."""
    return Observation(Seen.NO, evidence, value)


def unknown(evidence: str = "") -> Observation:
    """It was not seen either way."""
    return Observation(Seen.UNKNOWN, evidence)


NOT_ASKED = unknown("not asked")


def require_reachable(reports: Sequence[ProbeReport]) -> None:
    """Make sure that every server that was probed has answered.

    Raises:
        ServerUnreachableError: some did not; the message has what was seen of each.
    """
    if missing := [report[Capability.REACHABLE].evidence for report in reports if not report.is_reachable]:
        raise ServerUnreachableError("; ".join(missing))
