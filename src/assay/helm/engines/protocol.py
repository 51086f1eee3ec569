"""What answers HELM's requests in this process: the small interface that an inference engine fits into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.helm.adaptation import Request
    from assay.types import Completion


class Engine(Protocol):
    """A model that answers a batch of requests at a time.

    Completions hold the real log-probabilities of their tokens. They need not end exactly where HELM ends them: stop
    sequences and numbers of tokens are seen to afterwards.
    """

    batch_size: int
    """How many requests it takes at once, at most."""

    window: int
    """The model's context length in tokens."""

    @property
    def end_of_text(self) -> str | None:
        """The text with which the model ends."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that can change its answers, JSON-able: the model, its precision, seeds."""

    def refuse_impossible(self, request: Request) -> None:
        """Refuse a request that it cannot answer.

        Raises:
            UnsupportedTaskError: says what it asks for.
        """

    def fitted(self, request: Request) -> Request:
        """The request with a prompt that fits into the model's window beside the tokens that are to be generated."""

    def length(self, prompt: str) -> int:
        """The prompt's number of tokens; prompts of like length are answered together."""

    def generate(self, requests: Sequence[Request]) -> Sequence[Sequence[Completion]]:
        """Answer a batch of requests that differ in their prompts only.

        Returns:
            For each request, in order, its ``num_completions`` completions. Where ``echo_prompt`` is set, which it is
            with ``max_tokens`` 0 only: one, the prompt's own tokens.
        """
