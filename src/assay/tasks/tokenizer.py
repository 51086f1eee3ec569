"""The tokenizers that can split prompts on this side, and the choice among them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.tasks.chat_template import ChatTemplate
    from assay.types import ModelSpec

REMOTE = "remote"
"""In place of a tokenizer's name: the server's own, over HTTP."""
TIKTOKEN = "tiktoken:"
"""Begins the name of one of tiktoken's encodings, or of a model that it knows."""


class Tokenizer(Protocol):
    """Text to token ids and back."""

    eos_token: str | None
    """The text of its end-of-sequence token."""
    cuts_prompts: bool
    """Whether prompts for generated answers are cut to the context length. lm-eval cuts none with tiktoken."""

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context.

        Raises:
            SpecificationError: the tokenizer names none.
        """

    @property
    def chat_template(self) -> ChatTemplate:
        """The template by which conversations become text.

        Raises:
            SpecificationError: the tokenizer has none.
        """

    @property
    def recorded(self) -> dict[str, Any]:
        """What lm-eval writes of it into results; empty where it writes nothing."""

    @property
    def encode(self) -> Callable[[str], list[int]]:
        """Token ids of a text, without special tokens unless the tokenizer was asked to add them."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""


def backend_of(model: ModelSpec) -> str | None:
    """lm-eval's ``tokenizer_backend`` for a specification; None if it names no tokenizer."""
    if model.tokenizer is None:
        return None
    if model.tokenizer == REMOTE:
        return "remote"
    return "tiktoken" if model.tokenizer.startswith(TIKTOKEN) else "huggingface"


def server_has_tokenizer(model: ModelSpec) -> bool:
    """Whether the server offers its own tokenizer as lm-eval's ``auto`` looks for it."""
    from assay.tasks.remote_tokenizer import RemoteTokenizer

    try:
        tokenizer = RemoteTokenizer(model)
        tokenizer.encode("a")
    except AssayError:
        return False
    return tokenizer.is_known_to_lm_eval


def tokenizer_of(model: ModelSpec) -> Tokenizer | None:
    """The tokenizer that a specification names; None if it names none.

    Raises:
        MissingDependencyError: its library is not installed.
        SpecificationError: there is no such tokenizer, or the server offers none.
        FileFormatError: its files are damaged.
        ServerUnreachableError: the server that has it does not answer.
    """
    backend = backend_of(model)
    if backend is None or model.tokenizer is None:
        return None
    if backend == "remote":
        from assay.tasks.remote_tokenizer import RemoteTokenizer

        return RemoteTokenizer(model)
    if backend == "tiktoken":
        from assay.tasks.tiktoken_tokenizer import TiktokenTokenizer

        return TiktokenTokenizer(model.tokenizer.removeprefix(TIKTOKEN), prefix_token_id=model.custom_prefix_token_id)
    from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer

    return HuggingFaceTokenizer(
        model.tokenizer,
        revision=model.tokenizer_revision,
        add_special_tokens=model.add_bos_token,
        prefix_token_id=model.custom_prefix_token_id,
    )
