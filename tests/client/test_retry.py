import json
import random
from email.utils import formatdate
from typing import Any

import pytest
from multidict import CIMultiDict

from assay.client.replies import ReplyError, error_in_reply
from assay.client.retry import Fault, Retryability, reply_fault, retry_delay, status_fault
from assay.types import FailureCause


def fault(status: int, body: str) -> Fault:
    return status_fault(status, body.encode(), CIMultiDict())


@pytest.mark.parametrize(
    ("status", "cause", "retryability"),
    [
        (400, FailureCause.BAD_REQUEST, Retryability.NO),
        (401, FailureCause.UNAUTHORISED, Retryability.NO),
        (402, FailureCause.UNAUTHORISED, Retryability.NO),
        (403, FailureCause.UNAUTHORISED, Retryability.NO),
        (404, FailureCause.NOT_FOUND, Retryability.NO),
        (408, FailureCause.TIMED_OUT, Retryability.YES),
        (425, FailureCause.SERVER_ERROR, Retryability.YES),
        (413, FailureCause.BAD_REQUEST, Retryability.NO),
        (422, FailureCause.BAD_REQUEST, Retryability.NO),
        (429, FailureCause.RATE_LIMITED, Retryability.YES),
        (500, FailureCause.SERVER_ERROR, Retryability.YES),
        (501, FailureCause.BAD_REQUEST, Retryability.NO),
        (502, FailureCause.SERVER_ERROR, Retryability.UNSURE),
        (503, FailureCause.SERVER_ERROR, Retryability.UNSURE),
        (504, FailureCause.SERVER_ERROR, Retryability.UNSURE),
        (529, FailureCause.SERVER_ERROR, Retryability.YES),
        (302, FailureCause.BAD_REQUEST, Retryability.NO),
    ],
)
def test_what_a_status_means(status: int, cause: FailureCause, retryability: Retryability) -> None:
    found = fault(status, "no")
    assert (found.cause, found.retryability, found.status) == (cause, retryability, status)


@pytest.mark.parametrize("status", range(300, 600))
def test_asking_again_is_advised_where_it_is_tried(status: int) -> None:
    found = fault(status, "no")
    assert found.cause.is_transient is (found.retryability is not Retryability.NO)


@pytest.mark.parametrize("cause", list(FailureCause))
def test_a_reply_of_status_200_is_asked_for_again_where_that_may_help(cause: FailureCause) -> None:
    found = reply_fault(ReplyError(cause, "no answer"), "http://host/v1")
    assert (found.cause, found.status) == (cause, 200)
    assert cause.is_transient is (found.retryability is not Retryability.NO)


@pytest.mark.parametrize(
    ("error", "like"),
    [
        ({"message": "slow down", "code": 429}, 429),
        ({"message": "slow down", "code": "429"}, 429),
        ({"message": "no such model", "status": 404}, 404),
        ({"error": {"message": "stop: at most 4 items", "code": 400}}, 400),
        ({"message": "maximum context length is 4096 tokens", "code": 400}, 400),
        ({"message": "upstream is away", "code": 503}, 503),
    ],
)
def test_an_error_in_a_reply_of_status_200_is_taken_as_the_status_that_it_names(error: Any, like: int) -> None:
    found, expected = reply_fault(error_in_reply(error), "http://host/v1"), fault(like, json.dumps(error))
    assert (found.status, found.retryability) == (like, expected.retryability)
    assert found.cause in (expected.cause, FailureCause.ERROR_IN_REPLY)
    assert found.message.startswith(f"error {like}: ")


@pytest.mark.parametrize("code", ["rate_limit", 1301, 42, None, True, {"a": 1}, "4000"])
def test_other_codes_are_no_status(code: Any) -> None:
    found = reply_fault(error_in_reply({"message": "boom", "code": code}), "http://host/v1")
    assert (found.cause, found.status, found.message) == (FailureCause.ERROR_IN_REPLY, 200, "boom")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"),  # vLLM
        (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096."),  # vLLM
        (400, "The prompt (total length 5000) is too long to fit into the model (context length 4096)"),  # vLLM
        (400, "The input (5000 tokens) is longer than the model's context length (4096 tokens)."),  # SGLang
        (400, "Requested token count exceeds the model's maximum context length of 4096 tokens."),  # SGLang
        (400, '{"error": {"code": 400, "message": "…", "type": "exceed_context_size_error", "n_ctx": 512}}'),
        (400, "request (900 tokens) exceeds the available context size (512 tokens), try increasing it"),  # llama.cpp
        (500, "Requested tokens (900) exceed context window of 512"),  # llama-cpp-python
        (400, '{"error": {"code": "context_length_exceeded", "message": "…"}}'),  # OpenAI
        (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096"),  # TGI
    ],
)
def test_every_servers_wording_for_a_prompt_too_long(status: int, said: str) -> None:
    found = fault(status, said)
    assert (found.cause, found.retryability) == (FailureCause.CONTEXT_TOO_LONG, Retryability.NO)


@pytest.mark.parametrize("said", ["stop: List should have at most 4 items", "invalid context", "max_tokens too large"])
def test_other_bad_requests_are_not_taken_for_it(said: str) -> None:
    assert fault(400, said).cause == FailureCause.BAD_REQUEST


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("86400", 86400.0),
        (" 7 ", 7.0),
        ("9" * 40, 365 * 86400.0),
        ("1_0", None),
        ("1e3", None),
        ("+7", None),
        ("٧", None),
        ("9" * 5000, None),
        ("inf", None),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("soon", None),
    ],
)
def test_retry_after_in_seconds(value: str, seconds: float | None) -> None:
    assert status_fault(429, b"", CIMultiDict({"Retry-After": value})).retry_after == seconds


def test_retry_after_as_a_date_is_measured_by_the_servers_clock() -> None:
    for now in (0.0, 4e9):
        headers = CIMultiDict({"Date": formatdate(now, usegmt=True), "Retry-After": formatdate(now + 9, usegmt=True)})
        assert status_fault(503, b"", headers).retry_after == pytest.approx(9, abs=1)


def test_a_retry_after_is_waited_for_in_full() -> None:
    rng = random.Random(0)
    asked_to_wait = Fault(FailureCause.RATE_LIMITED, "", Retryability.YES, 429, 40.0)
    assert all(40.0 <= retry_delay(asked_to_wait, 1, rng) <= 44.0 for _ in range(200))


def test_delays_double_and_are_bounded() -> None:
    rng = random.Random(0)
    error = Fault(FailureCause.SERVER_ERROR, "", Retryability.YES, 500)
    longest = [max(retry_delay(error, n, rng) for _ in range(500)) for n in range(1, 12)]
    assert longest[0] == pytest.approx(0.5, rel=0.05)
    assert longest[3] == pytest.approx(4.0, rel=0.05)
    assert longest[-1] == pytest.approx(30.0, rel=0.05)
    assert retry_delay(error, 10_000, rng) <= 30.0


@pytest.mark.parametrize("status", [429, 502, 503, 504, 529])
def test_eight_attempts_outlast_a_minute_of_overload(status: int) -> None:
    overload = Fault(FailureCause.RATE_LIMITED, "", Retryability.YES, status)
    for seed in range(50):
        rng = random.Random(seed)
        assert sum(retry_delay(overload, n, rng) for n in range(1, 8)) >= 60


PROXY_PAGE = """<html>\r
<head><title>502 Bad Gateway</title><style>h1 { color: red }</style></head>
<body><center><h1>502 Bad Gateway</h1></center><hr>nginx &amp; more</body></html>"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (PROXY_PAGE, "502 Bad Gateway nginx & more"),
        ('{"error": {"message": "not supported", "param": "max_tokens"}}', "not supported (field max_tokens)"),
        ('{"error": {"message": "max_tokens is not supported", "param": "max_tokens"}}', "max_tokens is not supported"),
        ('{"error": {"message": "no", "param": 7}}', "no"),
        ('{"error": "no"}', "no"),
        ("[]", "[]"),
    ],
)
def test_what_a_refusal_says_fits_on_a_line_and_names_the_field(body: str, said: str) -> None:
    assert fault(502, body).message == f"HTTP 502: {said}"


def test_a_page_of_thousands_of_open_tags_is_read_in_no_time() -> None:
    assert fault(502, "<script " * 8000).message.startswith("HTTP 502: ")


def test_only_a_redirect_says_where_to() -> None:
    assert "redirected (301) to /there" in status_fault(301, b"", CIMultiDict({"Location": "/there"})).message
    assert status_fault(304, b"", CIMultiDict()).message == "HTTP 304"
