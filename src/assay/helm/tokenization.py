"""HELM's tokenization requests, and services that answer them with a given tokenizer."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from assay.errors import AssayError, MissingDependencyError, SpecificationError

if TYPE_CHECKING:
    from collections.abc import Sequence

SAMPLE_TEXT = "Is 1 a number?"
"""A text that every tokenizer can encode."""

_CACHE_SIZE = 1024
_SHOWN = 60


class TokenizationRequest(msgspec.Struct, frozen=True):
    """A request for a text's tokens."""

    text: str
    tokenizer: str
    encode: bool = False
    """Return token ids instead of strings."""
    truncation: bool = False
    max_length: int = 2048


class TokenizationToken(msgspec.Struct, frozen=True):
    """One token."""

    value: str | int


class TokenizationRequestResult(msgspec.Struct, frozen=True):
    """A text's tokens."""

    success: bool
    cached: bool
    text: str
    tokens: list[TokenizationToken]
    request_time: float | None = None
    error: str | None = None

    @property
    def num_tokens(self) -> int:
        """The number of tokens."""
        return len(self.tokens)


class DecodeRequest(msgspec.Struct, frozen=True):
    """A request for the text of tokens."""

    tokens: list[int]
    tokenizer: str
    clean_up_tokenization_spaces: bool = False


class DecodeRequestResult(msgspec.Struct, frozen=True):
    """The text of tokens."""

    success: bool
    cached: bool
    text: str
    request_time: float | None = None
    error: str | None = None


class TokenizerService(Protocol):
    """The part of HELM's ``metric_service`` that metrics use."""

    def tokenize(self, request: Any, /) -> Any:
        """Answer a `TokenizationRequest` with an object that has ``tokens``."""


class Encoder(Protocol):
    """A minimal tokenizer."""

    def encode(self, text: str, /) -> Sequence[Any]:
        """The text's tokens."""

    def decode(self, tokens: Any, /) -> str:
        """The tokens' text."""


class EncoderService:
    """Answers HELM's requests with any tokenizer that has ``encode`` and ``decode``."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def tokenize(self, request: TokenizationRequest) -> TokenizationRequestResult:
        """The text's tokens, as the tokenizer gives them."""
        tokens = list(self.encoder.encode(request.text))
        if request.truncation:
            tokens = tokens[: request.max_length]
        return TokenizationRequestResult(True, False, request.text, [TokenizationToken(token) for token in tokens])

    def decode(self, request: DecodeRequest) -> DecodeRequestResult:
        """The tokens' text."""
        return DecodeRequestResult(True, False, self.encoder.decode(request.tokens))


class OptTokenizer:
    """Answers HELM's requests with a Hugging Face tokenizer, as engines for OPT-like models use it.

    It adds no beginning-of-sequence token. Galactica's tokenizer has no padding and end tokens; they come from the
    model's configuration.

    Args:
        name: The tokenizer's directory or its name on the hub.
        tokenizer: A tokenizer of ``transformers``, if it is already loaded.

    Raises:
        MissingDependencyError: transformers is not installed.
    """

    def __init__(self, name: str, tokenizer: Any = None) -> None:
        self.name = name
        self.tokenizer = tokenizer if tokenizer is not None else _load(name)
        self.tokenizer.add_bos_token = False

    def tokenize(self, request: TokenizationRequest) -> TokenizationRequestResult:
        """The text's tokens, as ids or as strings."""
        tokens: list[Any]
        if not request.encode:
            tokens = self.tokenizer.tokenize(request.text)
        elif request.truncation:
            tokens = self.tokenizer.encode(
                request.text, truncation=True, max_length=request.max_length, add_special_tokens=False
            )
        else:
            tokens = self.tokenizer.encode(request.text, add_special_tokens=False)
        return TokenizationRequestResult(True, False, request.text, [TokenizationToken(token) for token in tokens])

    def decode(self, request: DecodeRequest) -> DecodeRequestResult:
        """The tokens' text."""
        text = self.tokenizer.decode(request.tokens, clean_up_tokenization_spaces=request.clean_up_tokenization_spaces)
        return DecodeRequestResult(True, False, text)


def read_tokenizer(transformers: Any, name: str) -> Any:
    """Load a tokenizer with ``transformers``.

    Args:
        transformers: The module.
        name: The tokenizer's directory or its name on the hub.

    Raises:
        ValueError: Its files are missing, so that ``transformers`` made a tokenizer without a vocabulary.
        Exception: Whatever else ``transformers`` raises.
    """
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, padding_side="left")
    if not tokenizer.encode(SAMPLE_TEXT, add_special_tokens=False):
        raise ValueError("the tokenizer has no vocabulary, as if its files were missing")
    return tokenizer


def _load(name: str) -> Any:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError:
        raise MissingDependencyError(
            "a Hugging Face tokenizer needs the package transformers: pip install transformers"
        ) from None
    tokenizer = read_tokenizer(transformers, name)
    if "galactica" in name:
        config = transformers.AutoConfig.from_pretrained(name)
        tokenizer.pad_token_id = config.pad_token_id
        tokenizer.eos_token_id = config.eos_token_id
    return tokenizer


class TokenCounter:
    """Counts tokens through a service, with a cache of recent texts, since metrics ask for the same ones.

    Raises:
        SpecificationError: The service fails on a text; the message is its own.
    """

    def __init__(self, service: TokenizerService, tokenizer: str) -> None:
        self._service = service
        self._tokenizer = tokenizer
        self._count = lru_cache(maxsize=_CACHE_SIZE)(self._ask)

    def count_ids(self, text: str) -> int:
        """The number of token ids."""
        return self._count(text, True)

    def count_strings(self, text: str) -> int:
        """The number of token strings."""
        return self._count(text, False)

    def _ask(self, text: str, encode: bool) -> int:
        try:
            return len(self._service.tokenize(TokenizationRequest(text, self._tokenizer, encode=encode)).tokens)
        except AssayError:
            raise
        except (Exception, SystemExit) as error:
            raise SpecificationError(
                f"the tokenizer fails on the text {text[:_SHOWN]!r}: {type(error).__name__}: {error}"
            ) from error
