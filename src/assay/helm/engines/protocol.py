"""The interface of an inference engine that answers HELM's requests in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.helm.adaptation import Request
    from assay.types import Completion


class Engine(Protocol):
    """A model that answers a batch of requests at a time.

    Completions have the real log-probabilities of their tokens, or 0 from an engine that gives none; such an engine
    refuses prompts that are scored. They may be longer than HELM's: they are cut at stop sequences and ``max_tokens``
    afterwards.
    """

    batch_size: int
    """The largest number of requests in a batch."""

    max_length: int
    """The model's context length in tokens."""

    @property
    def end_of_text(self) -> str | None:
        """The text of the end-of-sequence token."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything that can change the answers, as JSON values: the model, its precision, seeds."""

    def check_supported(self, request: Request) -> None:
        """Refuse a request that the engine cannot answer.

        Raises:
            UnsupportedTaskError: says what the request asks for.
        """

    def truncate_prompt(self, request: Request) -> Request:
        """The request with its prompt cut so that prompt and generated tokens fit into the context length."""

    def count_tokens(self, prompt: str) -> int:
        """The prompt's number of tokens, by which requests are sorted into batches."""

    def generate(self, requests: Sequence[Request]) -> Sequence[Sequence[Completion]]:
        """Answer a batch of requests that differ only in their prompts.

        Returns:
            For each request, in order, its ``num_completions`` completions. With ``echo_prompt``, which is set only
            together with ``max_tokens=0``, one completion with the prompt's own tokens.
        """
