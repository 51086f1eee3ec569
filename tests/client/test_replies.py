import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client.replies import ParsedReply, ReplyError, error_body_text, read_reply
from assay.types import EndpointKind, FailureCause


def chat(message: Any, **more: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **more}).encode()


def cause_of(body: bytes, endpoint: EndpointKind = "chat") -> FailureCause:
    with pytest.raises(ReplyError) as caught:
        read_reply(body, endpoint)
    return caught.value.cause


def test_a_chat_reply() -> None:
    body = chat(
        {"role": "assistant", "content": "4", "reasoning_content": "2+2", "tool_calls": []},
        model="m",
        usage={"prompt_tokens": 7, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}},
        system_fingerprint=None,
    )
    assert read_reply(body, "chat") == ParsedReply("4", "stop", "2+2", 7, 1, "m")


def test_a_completions_reply() -> None:
    body = b'{"choices": [{"text": "4", "index": 0, "logprobs": null, "finish_reason": "length"}], "model": "m"}'
    assert read_reply(body, "completions") == ParsedReply("4", "length", None, None, None, "m")


@pytest.mark.parametrize("content", [None, "", "  ", "\x00", "é中🎉"])
def test_content_is_taken_as_it_is(content: str | None) -> None:
    assert read_reply(chat({"content": content}), "chat").text == content


def test_missing_content_is_null_content() -> None:
    assert read_reply(chat({"role": "assistant"}), "chat").text is None


@pytest.mark.parametrize(
    ("content", "text", "reasoning"),
    [
        ([{"type": "text", "text": "4"}], "4", None),
        ([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}], "42", None),
        (["4", {"text": "2"}], "42", None),
        ({"type": "text", "text": "4"}, "4", None),
        ([{"type": "output_text", "text": "4", "annotations": []}], "4", None),
        ([{"type": "text", "text": {"value": "4", "annotations": []}}], "4", None),
        (
            [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "4"}],
            "4",
            "hm",
        ),
        ([{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "4"}], "4", "hm"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "4"}], "4", "hm"),
        ([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, "4"], "4", "hm"),
        ([{"type": "thinking", "thinking": "hm"}], None, "hm"),
        ([{"text": "hm", "thought": True}, {"text": "4", "thought": False}], "4", "hm"),
        ({"role": "model", "parts": [{"text": "4"}]}, "4", None),
        ([{"type": "text", "text": "4"}, {"type": "reference", "reference_ids": [1]}], "4", None),
        ([{"type": "tool_use", "name": "calculator", "input": {}}], None, None),
        ([{"type": "text", "text": None}], None, None),
        ([], None, None),
    ],
)
def test_content_in_parts_is_joined_and_thinking_is_reasoning(content: Any, text: str | None, reasoning: str) -> None:
    said = read_reply(chat({"role": "assistant", "content": content}), "chat")
    assert (said.text, said.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    "content",
    [4, True, {}, {"type": []}, [4], [{"type": "image_url", "image_url": {"url": "x"}}], [[[[[["deep"]]]]]]],
)
def test_content_of_an_unknown_shape_is_quoted_and_not_asked_for_again(content: Any) -> None:
    with pytest.raises(ReplyError) as caught:
        read_reply(chat({"content": content}), "chat")
    assert caught.value.cause is FailureCause.UNREADABLE_REPLY
    assert json.dumps(content) in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [b'{"choices": {}}', b'{"content": "4", "stop": true}', b'{"choices": [{"message": "4"}]}', b'{"choices": ["4"]}'],
)
def test_nor_is_a_reply_of_another_shape(body: bytes) -> None:
    with pytest.raises(ReplyError) as caught:
        read_reply(body, "chat")
    assert caught.value.cause is FailureCause.UNREADABLE_REPLY
    assert body.decode() in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"<html>", b"{}", b'{"choices": null}', b'{"choices": [{"mess', b'{"detail": "busy"}', b'"busy"']
)
def test_what_may_come_from_a_gateway_is_asked_for_again(body: bytes) -> None:
    with pytest.raises(ReplyError) as caught:
        read_reply(body, "chat")
    assert caught.value.cause.is_transient


def test_the_first_choice_is_the_one_with_the_lowest_index() -> None:
    choices: list[dict[str, Any]] = [{"index": index, "message": {"content": str(index)}} for index in (2, 0, 1)]
    assert read_reply(json.dumps({"choices": choices}).encode(), "chat").text == "0"
    for index in (None, "0", 1.5, True):
        choices = [{"index": index, "message": {"content": text}} for text in ("first", "second")]
        assert read_reply(json.dumps({"choices": choices}).encode(), "chat").text == "first"


def test_a_text_in_the_place_of_a_message_is_an_answer() -> None:
    assert read_reply(b'{"choices": [{"text": "4"}]}', "chat").text == "4"


@pytest.mark.parametrize("name", ["model_length", "max_tokens", "MAX_TOKENS"])
def test_other_names_of_the_length_limit(name: str) -> None:
    body = json.dumps({"choices": [{"message": {"content": "4"}, "finish_reason": name}]}).encode()
    assert read_reply(body, "chat").finish_reason == "length"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_goes_by_two_names(name: str) -> None:
    assert read_reply(chat({"content": None, name: "hm"}), "chat").reasoning == "hm"


def test_oddly_typed_side_fields_cost_no_answer() -> None:
    body = chat({"content": "4", "reasoning": {"steps": []}}, model=7, usage={"prompt_tokens": 1.5, "x": None})
    assert read_reply(body, "chat") == ParsedReply("4", "stop", None, None, None, None)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (b"", FailureCause.MALFORMED_REPLY),
        (b"<html></html>", FailureCause.MALFORMED_REPLY),
        (b"null", FailureCause.MALFORMED_REPLY),
        (b"[]", FailureCause.MALFORMED_REPLY),
        (b"{}", FailureCause.MALFORMED_REPLY),
        (b'{"choices": null}', FailureCause.MALFORMED_REPLY),
        (b'{"choices": {}}', FailureCause.UNREADABLE_REPLY),
        (b'{"choices": [{}]}', FailureCause.MALFORMED_REPLY),
        (b'{"choices": [{"message": null}]}', FailureCause.MALFORMED_REPLY),
        (b'{"choices": [{"message": {"content": 4}}]}', FailureCause.UNREADABLE_REPLY),
        (b'{"choices": [{"message": {"content": "a"', FailureCause.MALFORMED_REPLY),
        (b"[" * 100_000, FailureCause.MALFORMED_REPLY),
        (b"\xff\xfe\xfd", FailureCause.MALFORMED_REPLY),
        (b'{"choices": []}', FailureCause.EMPTY_CHOICES),
        (b'{"error": {"message": "boom"}}', FailureCause.ERROR_IN_REPLY),
        (b'{"error": "boom", "choices": []}', FailureCause.ERROR_IN_REPLY),
        (b'{"choices": [{"error": {"code": 502}, "message": {"content": ""}}]}', FailureCause.ERROR_IN_REPLY),
        (b'{"choices": [{"finish_reason": "abort", "message": {"content": "The"}}]}', FailureCause.ERROR_IN_REPLY),
        (b'{"choices": [{"finish_reason": "network_error", "message": {"content": ""}}]}', FailureCause.ERROR_IN_REPLY),
        (b'{"choices": [{"finish_reason": "error", "message": {"content": "The"}}]}', FailureCause.ERROR_IN_REPLY),
    ],
)
def test_what_is_no_answer(body: bytes, cause: FailureCause) -> None:
    assert cause_of(body) == cause


@pytest.mark.parametrize("body", [b"", b" \n"])
def test_an_empty_body_is_called_that(body: bytes) -> None:
    with pytest.raises(ReplyError, match="the body of the reply is empty"):
        read_reply(body, "chat")


def test_a_chat_reply_to_a_completions_request_is_no_answer() -> None:
    assert cause_of(chat({"content": "4"}), "completions") == FailureCause.MALFORMED_REPLY


@pytest.mark.parametrize("nothing", [None, False, {}, "", {"code": 0, "message": ""}])
def test_an_error_that_says_nothing_is_none(nothing: Any) -> None:
    assert read_reply(chat({"content": "4"}, error=nothing), "chat").text == "4"


@pytest.mark.parametrize("usage", ["many", [1], 7, None, {"prompt_tokens": "ten"}])
def test_an_odd_usage_costs_no_answer(usage: Any) -> None:
    assert read_reply(chat({"content": "4"}, usage=usage), "chat").text == "4"


@pytest.mark.parametrize(
    ("content", "usage", "counted"),
    [
        ("4", {"prompt_tokens": 0, "completion_tokens": 0}, (None, None)),
        ("4", {"prompt_tokens": -1, "completion_tokens": -1}, (None, None)),
        ("", {"prompt_tokens": 5, "completion_tokens": 0}, (5, 0)),
        ("4", {"prompt_tokens": 1e300, "completion_tokens": 10**400}, (None, None)),
        ("4", {"prompt_tokens": 5.0, "completion_tokens": 1.5}, (5, None)),
        ("", {"prompt_tokens": 5, "completion_tokens": -3}, (5, None)),
    ],
)
def test_counts_that_count_nothing_are_missing(
    content: str, usage: dict[str, int], counted: tuple[int | None, int | None]
) -> None:
    said = read_reply(chat({"content": content}, usage=usage), "chat")
    assert (said.prompt_tokens, said.completion_tokens) == counted


def test_what_the_standard_library_reads_is_read() -> None:
    """NaN, a byte order mark, and half a surrogate pair, which becomes the replacement character."""
    assert read_reply(b'{"logprob": NaN, "choices": [{"message": {"content": "4"}}]}', "chat").text == "4"
    assert read_reply(b"\xef\xbb\xbf" + chat({"content": "4"}), "chat").text == "4"
    assert read_reply(chat({"content": "a\ud83db🎉"}), "chat").text == "a\ufffdb🎉"


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    with pytest.raises(ReplyError):
        read_reply(body, "chat")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "text", "error", "usage", "finish_reason", "model"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values, st.sampled_from(["chat", "completions"]))
def test_no_json_raises_anything_else(value: Any, endpoint: EndpointKind) -> None:
    try:
        said = read_reply(json.dumps(value).encode(), endpoint)
    except ReplyError:
        return
    assert said.text is None or isinstance(said.text, str)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "boom", "code": 1}}', "boom"),
        (b'{"error": "boom"}', "boom"),
        (b'{"detail": "boom"}', "boom"),
        (b'{"detail": [{"msg": "boom"}]}', '[{"msg": "boom"}]'),
        (b'{"message": {"message": "boom"}}', "boom"),
        (b"boom", "boom"),
        (b'data: {"error": {"message": "boom"}}\n\n', "boom"),
        (b'{"code": 1}', '{"code": 1}'),
    ],
)
def test_error_bodies_of_all_shapes(body: bytes, text: str) -> None:
    assert error_body_text(body) == text
