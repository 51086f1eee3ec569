"""Streams as they come off the wire, in any parts, and what is made of them."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client import streamed_answers
from assay.client.replies import ParsedReply, ReplyError, read_reply
from assay.client.streamed_answers import StreamReader
from assay.types import EndpointKind, FailureCause
from tests.servers.wire import events_of, reply_with

CHAT = {"messages": [], "model": "m", "stream_options": {"include_usage": True}}
PLAIN = {"prompt": "", "model": "m", "stream_options": {"include_usage": True}}


def read(*parts: bytes, endpoint: EndpointKind = "chat") -> ParsedReply:
    """The parts read, one a second, of a request sent at 100."""
    now = 100.0

    def clock() -> float:
        return now

    reader = StreamReader(endpoint, clock)
    for part in parts:
        now += 1.0
        if not reader.feed(part):
            break
    return reader.read(100.0)


def event(delta: Any = None, finish_reason: str | None = None, **fields: Any) -> bytes:
    choices = [{"index": 0, "delta": delta or {}, "finish_reason": finish_reason}]
    return b"data: " + json.dumps({"choices": choices, **fields}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"

texts = st.text(st.characters(codec="utf-8"), max_size=40)


@given(texts, st.sampled_from(["", "Let me think. 中"]), st.sampled_from(["stop", "length"]), st.data())
def test_a_stream_says_what_the_whole_reply_says_however_it_is_cut(
    text: str, reasoning: str, finish_reason: str, data: st.DataObject
) -> None:
    for endpoint, body in (("chat", CHAT), ("completions", PLAIN)):
        more = {"reasoning_content": reasoning} if reasoning and endpoint == "chat" else {}
        content = text if text or not more else None
        reply = reply_with(content, body, finish_reason, **more)
        whole = b"".join(events_of(reply, body))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
        parts = [whole[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        said = read(*parts, endpoint=endpoint)  # type: ignore[arg-type]
        expected = read_reply(json.dumps(reply).encode(), endpoint)  # type: ignore[arg-type]
        assert said == msgspec.structs.replace(expected, ttft=said.ttft)


def test_the_first_token_is_the_first_letter_of_content_or_reasoning_or_a_tool_call() -> None:
    opening = event({"role": "assistant", "content": ""})
    for first in ({"content": "4"}, {"reasoning_content": "hm"}, {"reasoning": "hm"}, {"tool_calls": [{"index": 0}]}):
        assert read(opening, b": ping\n\n", event(first), event({}, "stop"), DONE).ttft == 3.0
    assert read(opening, event({}, "stop"), DONE).ttft is None


def test_letters_that_two_events_share_are_whole() -> None:
    said = read(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', event({"content": "\ude00!"}), DONE)
    assert said.text == "😀!"
    assert read(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', DONE).text == "\ufffd"


@pytest.mark.parametrize("whole", [b'{"choices": [{"message": {"content": "4"}, "finish_reason": "stop"}]}'])
def test_a_server_that_ignores_stream_has_answered_all_the_same(whole: bytes) -> None:
    streamed = read(b"\xef\xbb\xbf\r\n", whole[:7], whole[7:])
    assert (streamed.text, streamed.ttft) == ("4", None)


def test_what_else_there_is_in_streams() -> None:
    other = b'data: {"choices":[{"index":1,"delta":{"content":"no"}}]}\n\n'
    empty = b'data: {"choices":null,"usage":{"prompt_tokens":7,"completion_tokens":NaN},"model":"other"}\n\n'
    said = read(other, event({"content": "yes"}, model="m"), event({}, "stop", usage=None), empty, DONE, b"data: {")
    assert (said.text, said.prompt_tokens, said.completion_tokens, said.model) == ("yes", 7, None, "m")
    several_lines = b'data: {"choices":\ndata: [{"delta":{"content":"a"}}]}\n\ndata:[DONE]'
    assert read(several_lines).text == "a"


def test_parts_of_content_and_reasoning_in_deltas() -> None:
    thinking = {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}
    said = read(event(thinking), event({"content": [{"type": "text", "text": "4"}]}), event({"content": "2"}), DONE)
    assert (said.text, said.reasoning, said.ttft) == ("42", "hm", 1.0)


def message(content: str, finish_reason: str | None = None) -> bytes:
    return (
        b"data: %b\n\n"
        % json.dumps({"choices": [{"message": {"content": content}, "finish_reason": finish_reason}]}).encode()
    )


@pytest.mark.parametrize(
    "parts",
    [
        [message("42", "stop")],
        [message("4"), message("2", "stop")],
        [message("4"), message("42"), message("42", "stop")],
        [event({"content": "4"}), event({"content": "2"}), message("42", "stop")],
        [b'data: {"choices": [{"delta": {}, "message": {"content": "42"}, "finish_reason": "stop"}]}\n\n'],
        [event({"role": "assistant"}), message("42", "stop")],
        [message("4")[:-1], message("2")[:-1], b"data: [DONE]\n"],
        [b"data:\n\n", b"data: \n\n", event({"content": "42"}), b"data:  [DONE] \n\n"],
        [event({"content": "42"}), b"data: [done]\n\n"],
        [event({"content": "42"}, "stop"), b"data: DONE\n\n"],
        [b"data: ping\n\n", event({"content": "4"}), b"data: ping\n\n", event({"content": "2"}), DONE],
        [b"event: ping\ndata: ping\n\n", b"data: null\n\n", event({"content": "42"}), DONE],
        [b'data: {"choices": [{"index": "0", "delta": {"content": "42"}}]}\n\n', DONE],
        [b"event: completion\nid: 1\nretry: 10\n: hm\n", event({"content": "42"}), DONE],
        [(event({"content": "4"}) + event({"content": "2"}) + DONE).replace(b"\n", b"\r")],
        [event({"content": "4"}).replace(b"\n", b"\r"), event({"content": "2"}).replace(b"\n", b"\r"), DONE],
        [event({"content": "42"})[:-1] + b"\r", b"\n\r", b"\n" + DONE],
    ],
)
def test_odd_streams_that_say_42(parts: list[bytes]) -> None:
    assert read(*parts).text == "42"


@pytest.mark.parametrize(
    ("parts", "cause", "message"),
    [
        ([], FailureCause.RESET, "ended before"),
        ([event({"content": "4"})], FailureCause.RESET, "ended before"),
        ([event({"content": "4"}), b'data: {"choices":[{"fin'], FailureCause.RESET, "ended before"),
        ([b"data"], FailureCause.RESET, "ended before"),
        ([b'data: {"object": "error", "message": "boom"}\n\n'], FailureCause.RESET, "ended before .*boom"),
        ([b": ping\n\n", DONE], FailureCause.EMPTY_CHOICES, "no choice"),
        ([b"<html>"], FailureCause.MALFORMED_REPLY, "not a reply of the protocol"),
        ([b"data: {broken\n\n", DONE], FailureCause.MALFORMED_REPLY, "broken"),
        ([b"data: " + b"[" * 100_000 + b"\n\n"], FailureCause.MALFORMED_REPLY, "not an event"),
        ([b"data: 4\n\n"], FailureCause.MALFORMED_REPLY, "not an event"),
        ([b'data: {"choices": "no"}\n\n'], FailureCause.UNREADABLE_REPLY, "not an event"),
        ([b"data: \xff\xfe\n\n"], FailureCause.MALFORMED_REPLY, "not an event"),
        ([event({"content": [4]}), DONE], FailureCause.UNREADABLE_REPLY, "of a shape that cannot be read: .4."),
        ([b'data: {"error":{"message":"out of memory"}}\n\n', DONE], FailureCause.ERROR_IN_REPLY, "out of memory"),
        ([event({}, "stop"), b'event: error\ndata: {"detail":"late"}\n\n'], FailureCause.ERROR_IN_REPLY, "late"),
        ([b'error: {"message":"n_ctx"}\n\n'], FailureCause.ERROR_IN_REPLY, "n_ctx"),
        ([b"event: error\ndata: not JSON\n\n"], FailureCause.ERROR_IN_REPLY, "not JSON"),
        ([b'data: {"choices":[{"error":"bad"}]}\n\n'], FailureCause.ERROR_IN_REPLY, "bad"),
        ([event({"content": "4"}, "abort"), DONE], FailureCause.ERROR_IN_REPLY, "broke off"),
    ],
)
def test_streams_that_are_no_answer(parts: list[bytes], cause: FailureCause, message: str) -> None:
    with pytest.raises(ReplyError, match=message) as caught:
        read(*parts)
    assert caught.value.cause is cause


def test_a_stream_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed_answers, "LARGEST_REPLY", 1000)
    for part in (event({"content": "x"}), b"x" * 100, b"{" * 100, b": ping\n\n"):
        reader = StreamReader("chat", lambda: 0.0)
        assert sum(reader.feed(part) for _ in range(2000)) < 1000
        with pytest.raises(ReplyError, match="larger than"):
            reader.read(0.0)
        assert not reader.is_complete


@given(
    st.lists(st.binary(max_size=30) | st.sampled_from([b"data: ", b"\n\n", b"[DONE]", b'{"choices":[]}', b"event:"]))
)
def test_any_bytes_are_an_answer_or_a_reply_error(parts: list[bytes]) -> None:
    with contextlib.suppress(ReplyError):
        assert isinstance(read(*parts), ParsedReply)
