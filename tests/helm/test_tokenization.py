from __future__ import annotations

import sys
from typing import Any

import pytest

from assay.errors import MissingDependencyError
from assay.helm import OptTokenizer
from assay.helm.tokenization import (
    DecodeRequest,
    EncoderService,
    TokenCounter,
    TokenizationRequest,
    TokenizationRequestResult,
)


class HuggingFaceStandIn:
    """What is used of a tokenizer of transformers; it begins every sequence with 2 unless told not to."""

    add_bos_token = True

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def encode(
        self, text: str, truncation: bool = False, max_length: int | None = None, add_special_tokens: bool = True
    ) -> list[int]:
        tokens = [len(word) for word in text.split()]
        if self.add_bos_token or add_special_tokens:
            tokens = [2, *tokens]
        return tokens[:max_length] if truncation else tokens

    def decode(self, tokens: list[int], clean_up_tokenization_spaces: bool) -> str:
        return " ".join("x" * token for token in tokens) + ("!" if clean_up_tokenization_spaces else "")


def values(answer: TokenizationRequestResult) -> list[str | int]:
    return [token.value for token in answer.tokens]


@pytest.fixture
def opt() -> OptTokenizer:
    return OptTokenizer("facebook/opt-125m", HuggingFaceStandIn())


def test_opt_encodes_without_a_beginning_of_sequence(opt: OptTokenizer) -> None:
    answer = opt.tokenize(TokenizationRequest("a bcd ef", "opt", encode=True))
    assert values(answer) == [1, 3, 2]
    assert answer.num_tokens == 3


def test_opt_truncates_when_asked(opt: OptTokenizer) -> None:
    request = TokenizationRequest("a bcd ef", "opt", encode=True, truncation=True, max_length=2)
    assert values(opt.tokenize(request)) == [1, 3]


def test_opt_gives_words_when_not_encoding(opt: OptTokenizer) -> None:
    assert values(opt.tokenize(TokenizationRequest("a bcd", "opt"))) == ["a", "bcd"]


def test_opt_decodes(opt: OptTokenizer) -> None:
    assert opt.decode(DecodeRequest([1, 2], "opt")).text == "x xx"
    assert opt.decode(DecodeRequest([1], "opt", clean_up_tokenization_spaces=True)).text == "x!"


@pytest.mark.parametrize(
    ("name", "padding", "end"), [("facebook/galactica-1.3b", 1, 2), ("facebook/opt-125m", None, None)]
)
def test_galacticas_special_tokens_come_from_the_model(
    monkeypatch: pytest.MonkeyPatch, name: str, padding: int | None, end: int | None
) -> None:
    class Tokenizer(HuggingFaceStandIn):
        pad_token_id = eos_token_id = None

    class Transformers:
        class AutoTokenizer:
            @staticmethod
            def from_pretrained(_: str, padding_side: str) -> Any:
                assert padding_side == "left"
                return Tokenizer()

        class AutoConfig:
            pad_token_id, eos_token_id = 1, 2

            @classmethod
            def from_pretrained(cls, _: str) -> Any:
                return cls

    monkeypatch.setitem(sys.modules, "transformers", Transformers)
    tokenizer = OptTokenizer(name).tokenizer
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (padding, end)


def test_without_transformers_a_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match="pip install transformers"):
        OptTokenizer("facebook/opt-125m")


def test_any_encoder_answers_helms_requests() -> None:
    class Letters:
        def encode(self, text: str) -> list[str]:
            return list(text)

        def decode(self, tokens: Any) -> str:
            return "".join(map(str, tokens))

    service = EncoderService(Letters())
    assert values(service.tokenize(TokenizationRequest("abc", "", truncation=True, max_length=2))) == ["a", "b"]
    assert service.decode(DecodeRequest([1, 2], "")).text == "12"


def test_a_text_is_counted_once(opt: OptTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def tokenize(request: TokenizationRequest) -> Any:
        asked.append(request)
        return OptTokenizer.tokenize(opt, request)

    monkeypatch.setattr(opt, "tokenize", tokenize)
    counter = TokenCounter(opt, "m/m")
    assert [counter.count_ids("a b"), counter.count_ids("a b"), counter.count_strings("a b")] == [2, 2, 2]
    assert [(request.encode, request.tokenizer) for request in asked] == [(True, "m/m"), (False, "m/m")]
