"""What a model in this process must offer: to generate and to score batches of token ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.tasks.tokenizer import Tokenizer


class Engine(Protocol):
    """A causal language model. It is asked by one thread at a time, with one batch at a time.

    An :class:`assay.AssayError` that it raises ends the run; any other exception is a failure of the batch's requests.
    """

    max_length: int
    """The model's context length in tokens."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Splits prompts."""

    @property
    def identity(self) -> Mapping[str, str]:
        """Everything that can change the answers beside the requests: the weights' hash, their precision, versions.

        Answers of an interrupted run are used again only where it is the same.
        """

    def generate(self, prompts: Sequence[GenerationPrompt], how: Generation) -> Sequence[Generated]:
        """Continue prompts that are generated from in the same way.

        Returns:
            An answer to each prompt, in order.

        Raises:
            MemoryError: the batch is too large; it comes again in halves.
        """

    def score(self, prompts: Sequence[ScoredPrompt]) -> Sequence[Scored]:
        """Say how likely each continuation is after its context.

        Returns:
            For each prompt, in order. Prompts with one context stand beside each other.

        Raises:
            MemoryError: the batch is too large; it comes again in halves.
        """


@dataclass(frozen=True)
class GenerationPrompt:
    """A text to be continued."""

    ids: tuple[int, ...]
    seed: int
    """For sampling: the prompt's own, so that its answer does not depend on the batch."""


@dataclass(frozen=True)
class Generation:
    """How a batch is generated from."""

    max_tokens: int
    stop: tuple[str, ...] = ()
    """Generation ends with any of these, which is left out of the text; it ends with the end-of-text token anyway."""
    temperature: float = 0.0
    """0: the likeliest token is taken."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """The task's other settings, by transformers' names: ``top_p``, ``top_k``, ``repetition_penalty``, …"""


@dataclass(frozen=True)
class Generated:
    """What was generated after one prompt."""

    text: str
    """Without special tokens, up to the first stop string."""
    num_tokens: int
    is_finished: bool
    """Whether it ended by itself; else at the limit of tokens."""


@dataclass(frozen=True)
class ScoredPrompt:
    """A continuation whose likelihood is asked for."""

    context: tuple[int, ...]
    """At least one token."""
    continuation: tuple[int, ...]


@dataclass(frozen=True)
class Scored:
    """How likely a continuation is."""

    logprob: float
    """The sum of its tokens' log-probabilities (natural logarithm)."""
    is_greedy: bool
    """Whether each of its tokens was the likeliest."""
