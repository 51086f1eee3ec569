"""Streams that nobody asked for, read as the whole replies that they should have been."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client.completions import read_completions
from assay.client.logprobs import read_echo
from assay.client.replies import ReplyError, read_reply
from assay.client.unasked_streams import whole_reply
from assay.types import CompletionToken, EndpointKind, FailureCause, TokenSpan
from tests.servers.wire import events_of, reply_with

texts = st.text(st.characters(codec="utf-8"), max_size=20)


def stream(*events: Any, end: bytes = b"data: [DONE]\n\n") -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events) + end


@given(texts, texts, st.sampled_from(["stop", "length"]), st.sampled_from(["chat", "completions"]))
def test_a_stream_is_read_as_the_whole_reply(
    text: str, reasoning: str, finish_reason: str, endpoint: EndpointKind
) -> None:
    body = {"messages" if endpoint == "chat" else "prompt": [], "model": "m", "stream_options": {"include_usage": True}}
    more = {"reasoning_content": reasoning} if reasoning and endpoint == "chat" else {}
    reply = reply_with(text, body, finish_reason, **more)
    whole = whole_reply(b"".join(events_of(reply, body)))
    assert read_reply(whole, endpoint) == read_reply(json.dumps(reply).encode(), endpoint)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b"<html>", b"\xef\xbb\xbf{}", b"[1]"])
def test_what_is_no_stream_stays_as_it_is(body: bytes) -> None:
    assert whole_reply(body) is body


def test_several_choices_and_their_tokens_are_kept_apart() -> None:
    def part(index: int, text: str, logprob: float, finish_reason: str | None = None) -> dict[str, Any]:
        logprobs = {"tokens": [text], "token_logprobs": [logprob], "top_logprobs": [{text: logprob}]}
        return {"choices": [{"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}]}

    body = stream(part(1, "b", -2.0), part(0, "a", -1.0), part(1, "B", -3.0, "stop"), part(0, "A", -4.0, "length"))
    _, (first, second) = read_completions(whole_reply(body), "completions", 2)
    assert (first.text, first.finish_reason) == ("aA", "length")
    assert first.tokens == (CompletionToken("a", -1.0), CompletionToken("A", -4.0))
    assert (second.text, second.tokens) == ("bB", (CompletionToken("b", -2.0), CompletionToken("B", -3.0)))


def test_an_echoed_prompt_is_read() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [None, -1.0], "top_logprobs": [None, {"b": -1.0}]}
    more = {"tokens": ["c"], "token_logprobs": [-2.0], "top_logprobs": [{"c": -2.0}]}
    body = stream(
        {"choices": [{"text": "ab", "logprobs": logprobs}]},
        {"choices": [{"text": "c", "logprobs": more, "finish_reason": "length"}]},
    )
    assert read_echo(whole_reply(body)).loglikelihood(TokenSpan(1, 2)) == (-1.0, True)


@pytest.mark.parametrize(
    "end",
    [b"data: [done]\n\n", b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: DONE\n\n'],
)
def test_what_ends_a_stream_may_be_written_otherwise(end: bytes) -> None:
    body = b"data: ping\n\n" + stream({"choices": [{"delta": {"content": "4"}}]}, end=end)
    assert read_reply(whole_reply(body), "chat").text == "4"


def test_a_byte_order_mark_and_signs_of_life_before_it() -> None:
    body = b"\xef\xbb\xbf: hm\n\nevent: ping\ndata: ping\n\n" + stream({"choices": [{"delta": {"content": "4"}}]})
    assert read_reply(whole_reply(body), "chat").text == "4"


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ([{"message": {"content": "42"}}], "42"),
        ([{"delta": {}, "message": {"content": "42"}}], "42"),
        ([{"delta": {"role": "assistant"}}, {"message": {"content": "42"}}], "42"),
        ([{"message": {"content": "4"}}, {"message": {"content": "42"}}], "42"),
        ([{"delta": {"content": "4"}}, {"delta": {"content": "2"}}, {"message": {"content": "42"}}], "42"),
        ([{"delta": {"content": [{"type": "text", "text": "4"}]}}, {"delta": {"content": "2"}}], "42"),
        ([{"delta": {"content": "\ud83d"}}, {"delta": {"content": "\ude00"}}], "😀"),
    ],
)
def test_messages_and_parts_in_events(events: list[Any], text: str) -> None:
    assert read_reply(whole_reply(stream(*({"choices": [choice]} for choice in events))), "chat").text == text


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (stream({"choices": [{"delta": {"content": "4"}}]}, end=b""), FailureCause.RESET),
        (b": ping\n\n", FailureCause.RESET),
        (stream({"detail": "boom"}, end=b""), FailureCause.RESET),
        (stream(), FailureCause.EMPTY_CHOICES),
        (stream({"error": {"message": "boom"}}, end=b""), FailureCause.ERROR_IN_REPLY),
        (b'event: error\ndata: {"message": "boom"}\n\n', FailureCause.ERROR_IN_REPLY),
        (b"data: {broken\n\n", FailureCause.MALFORMED_REPLY),
        (b"data: 4\n\n", FailureCause.MALFORMED_REPLY),
        (stream({"choices": [4]}), FailureCause.UNREADABLE_REPLY),
    ],
)
def test_streams_that_are_no_answer(body: bytes, cause: FailureCause) -> None:
    with pytest.raises(ReplyError) as caught:
        read_reply(whole_reply(body), "chat")
    assert caught.value.cause is cause


@given(
    st.lists(
        st.recursive(
            st.none() | st.integers() | st.text(max_size=3),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["choices", "delta", "message", "content", "text", "error", "index", "finish_reason"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=9,
        ),
        max_size=4,
    )
)
def test_any_stream_is_an_answer_or_a_reply_error(events: list[Any]) -> None:
    with contextlib.suppress(ReplyError):
        read_reply(whole_reply(stream(*events)), "chat")
