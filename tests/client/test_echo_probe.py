"""The trial of a server's log-probabilities, against imitations of what real servers answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from assay.client.echo_probe import find_logprob_source
from assay.client.replies import ReplyError
from assay.errors import ServerRefusedError, UnsupportedTaskError
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from assay.tasks.loglikelihood import LoglikelihoodBodies
from assay.types import Failure, FailureCause, LogprobSource, ModelSpec
from tests.servers.echoing import ImaginaryModel
from tests.small_tokenizer import write_small_tokenizer

T = TypeVar("T")
Answer = Callable[[dict[str, Any]], Any]

FORMS = ("token ids", "decoded text", "server's tokens")
"""How prompts go, and whose tokens count."""


class Server:
    """Stands in for an open ``OpenAIModel``."""

    address = "http://server"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0

    async def exchange(self, payload: bytes, read: Callable[[bytes], T]) -> T | Failure:
        self.asked += 1
        try:
            reply = self.answer(json.loads(payload))
        except ValueError as error:
            return Failure(cause=FailureCause.BAD_REQUEST, message=str(error), status=400)
        try:
            return reply if isinstance(reply, Failure) else read(json.dumps(reply).encode())
        except ReplyError as error:
            return Failure(cause=error.cause, message=str(error))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(write_small_tokenizer(tmp_path_factory.mktemp("tokenizer")))


def find(answer: Answer, tokenizer: HuggingFaceTokenizer, form: str) -> LogprobSource:
    spec = ModelSpec(base_url="http://server", model="imaginary", tokenized_requests=form == "token ids")
    own = None if form == "server's tokens" else tokenizer
    trial = lambda source: LoglikelihoodBodies(spec, own, source).trial()  # noqa: E731
    return asyncio.run(find_logprob_source(Server(answer), trial))


@pytest.mark.parametrize("form", FORMS)
def test_a_right_server_is_taken_at_its_word(tokenizer: HuggingFaceTokenizer, form: str) -> None:
    assert find(ImaginaryModel(tokenizer).vllm, tokenizer, form) is LogprobSource.ECHO


@pytest.mark.parametrize("form", FORMS)
def test_prompt_logprobs_are_used_where_echo_is_refused(tokenizer: HuggingFaceTokenizer, form: str) -> None:
    model = ImaginaryModel(tokenizer)
    assert find(model.vllm_without_echo, tokenizer, form) is LogprobSource.PROMPT_LOGPROBS


@pytest.mark.parametrize("form", FORMS)
def test_sglangs_own_endpoint_is_used_where_both_are_refused(tokenizer: HuggingFaceTokenizer, form: str) -> None:
    assert find(ImaginaryModel(tokenizer).sglang, tokenizer, form) is LogprobSource.SGLANG


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda meta: meta["input_token_logprobs"].pop(), "unequal length"),
        (lambda meta: meta.update(input_token_logprobs=[], input_top_logprobs=[]), "are empty"),
        (lambda meta: meta["input_top_logprobs"].__setitem__(-1, None), "no likeliest token"),
        (lambda meta: meta["input_token_logprobs"][0].__setitem__(0, -1.0), "first token"),
        (
            lambda meta: [entry.__setitem__(2, None) for entry in meta["input_token_logprobs"]],
            "not the prompt's|read ''",
        ),
        (lambda meta: meta.pop("input_top_logprobs"), "without choices"),
    ],
)
def test_a_damaged_reply_of_sglangs_is_refused(
    tokenizer: HuggingFaceTokenizer, form: str, damage: Callable[[Any], object], reason: str
) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        reply = ImaginaryModel(tokenizer).sglang(body)
        if "meta_info" in reply:
            damage(reply["meta_info"])
        return reply

    with pytest.raises(UnsupportedTaskError, match=f"at SGLang's /generate, .*({reason})"):
        find(answer, tokenizer, form)


@pytest.mark.parametrize("form", ["token ids", "decoded text"])
def test_llama_cpps_own_endpoint_is_used_where_nothing_else_is_offered(
    tokenizer: HuggingFaceTokenizer, form: str
) -> None:
    assert find(ImaginaryModel(tokenizer).llama_cpp_native, tokenizer, form) is LogprobSource.LLAMA_CPP


def test_llama_cpps_own_endpoint_needs_a_tokenizer(tokenizer: HuggingFaceTokenizer) -> None:
    with pytest.raises(UnsupportedTaskError, match=r"/completion, it cannot be tried without .* \(--tokenizer\)"):
        find(ImaginaryModel(tokenizer).llama_cpp_native, tokenizer, "server's tokens")


def _after_the_bias(reply: dict[str, Any]) -> None:
    entry = reply["completion_probabilities"][0]
    entry["logprob"] = 0.0
    entry["top_logprobs"] = [{"token": entry["token"], "logprob": 0.0}]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (_after_the_bias, "belong to other tokens"),
        (lambda reply: reply.update(tokens_evaluated=3), "prompt tokens where"),
        (lambda reply: reply.update(completion_probabilities=None), "half a character"),
        (lambda reply: reply["completion_probabilities"][0].update(top_logprobs=[]), "no likeliest token"),
        (lambda reply: reply["completion_probabilities"][0].update(logprob=None), "without choices"),
    ],
)
def test_a_damaged_reply_of_llama_cpps_is_refused(
    tokenizer: HuggingFaceTokenizer, damage: Callable[[Any], object], reason: str
) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        reply = ImaginaryModel(tokenizer).llama_cpp_native(body)
        if "tokens_evaluated" in reply:
            damage(reply)
        return reply

    with pytest.raises(UnsupportedTaskError, match=f"at llama.cpp's /completion, .*{reason}"):
        find(answer, tokenizer, "token ids")


def test_a_token_put_before_all_text_does_no_harm_where_the_servers_tokens_count(
    tokenizer: HuggingFaceTokenizer,
) -> None:
    model = ImaginaryModel(tokenizer, begins_with="<s>")
    assert find(model.vllm, tokenizer, "server's tokens") is LogprobSource.ECHO


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ("llama_cpp", "log-probabilities of the generated text only"),
        ("transformers_serve", "holds no log-probabilities"),
        ("shifted", "belong to other tokens"),
        ("llama_cpp_python", "prompt tokens"),
        ("echo_ignored", "prompt tokens"),
    ],
)
def test_a_server_that_answers_something_else_is_refused(
    tokenizer: HuggingFaceTokenizer, form: str, server: str, reason: str
) -> None:
    with pytest.raises(UnsupportedTaskError, match=reason):
        find(getattr(ImaginaryModel(tokenizer), server), tokenizer, form)


def test_a_server_that_splits_text_otherwise_than_the_tokenizer_is_refused(tokenizer: HuggingFaceTokenizer) -> None:
    model = ImaginaryModel(tokenizer, begins_with="<s>")
    with pytest.raises(UnsupportedTaskError, match="prompt tokens where"):
        find(model.vllm, tokenizer, "decoded text")


def test_a_first_token_with_a_value_is_refused(tokenizer: HuggingFaceTokenizer) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        reply = ImaginaryModel(tokenizer).vllm(body)
        if "echo" in body:
            reply["choices"][0]["logprobs"]["token_logprobs"][0] = -1.0
        else:
            del reply["choices"][0]["prompt_logprobs"]
        return reply

    with pytest.raises(UnsupportedTaskError, match="first token"):
        find(answer, tokenizer, "token ids")


def test_the_refusal_names_the_server_and_what_it_said(tokenizer: HuggingFaceTokenizer) -> None:
    def answer(_: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("logprobs are off")

    with pytest.raises(UnsupportedTaskError, match=r"http://server .*refused \(logprobs are off\)"):
        find(answer, tokenizer, "token ids")


def test_a_server_without_an_answer_is_no_reason_to_call_the_task_unsupported(tokenizer: HuggingFaceTokenizer) -> None:
    failure = Failure(cause=FailureCause.SERVER_ERROR, message="HTTP 500: out of memory", status=500)
    with pytest.raises(ServerRefusedError, match="out of memory"):
        find(lambda _: failure, tokenizer, "token ids")


def test_it_takes_two_questions(tokenizer: HuggingFaceTokenizer) -> None:
    server = Server(ImaginaryModel(tokenizer).vllm)
    spec = ModelSpec(base_url="http://server", model="imaginary")
    asyncio.run(find_logprob_source(server, lambda source: LoglikelihoodBodies(spec, tokenizer, source).trial()))
    assert server.asked == 2
