"""When a run ends because nothing is answered, with which words, and when it does not end."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from assay.client.openai import OpenAIModel
from assay.client.refusals import SHORT_QUESTION
from assay.client.retry import Fault, Retryability
from assay.errors import ServerRefusedError, ServerUnreachableError
from assay.types import Answer, FailureCause, ModelSpec
from tests.client.clocks import VirtualTime
from tests.client.outages import NO_CONNECTION, Body, Played, play, prompt, request, says
from tests.servers.scripted import reply_with

HTML = "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
BROKEN = says(500, "EngineCore encountered an issue")


def down_until(back: float) -> Played:
    return play(
        lambda now, _: "fine" if now >= back else NO_CONNECTION, healthy=lambda now: now >= back, give_up_after=300
    )


def asks_for(body: Body) -> str:
    text: str = body["messages"][0]["content"]
    return text


# --- nothing is answered for too long ----------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [2, 16])
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (says(429, "slow down"), "HTTP 429: slow down"),
        (says(429, "slow down", Retry_After="7"), "HTTP 429: slow down"),
        (says(502, HTML), "HTTP 502: 502 Bad Gateway"),
        (says(503, "Loading model"), "HTTP 503: Loading model"),
        (says(529, "Overloaded"), "HTTP 529: Overloaded"),
        (BROKEN, "EngineCore"),
        (NO_CONNECTION, "Connection refused"),
    ],
)
def test_the_limit_counts_from_the_first_failure_after_the_last_answer(
    fault: Fault, words: str, concurrency: int
) -> None:
    played = play(
        lambda now, _: "fine" if now < 10 else fault,
        requests=1000,
        seconds=0.5,
        concurrency=concurrency,
        give_up_after=20,
        max_attempts=100,
    )
    assert isinstance(played.error, ServerUnreachableError)
    assert words in str(played.error)
    assert "the same command" in str(played.error)
    assert played.seconds == pytest.approx(30, abs=1.5)
    assert played.answers >= 10 * concurrency
    assert not played.failures, "no request has used up its attempts by then"


def test_a_server_that_is_not_there_is_waited_for_no_longer() -> None:
    played = play(lambda *_: NO_CONNECTION, healthy=lambda _: False, give_up_after=300)
    assert str(played.error) == (
        "nothing has answered at http://server-0 for 5 min (last: no connection: Connection refused); the answers so "
        "far are kept: start the server, then run the same command again"
    )
    assert played.seconds == pytest.approx(300, abs=1)


def test_a_proxy_that_is_not_there_is_named_as_what_to_start() -> None:
    no_proxy = msgspec.structs.replace(NO_CONNECTION, is_at_proxy=True)
    played = play(lambda *_: no_proxy, healthy=lambda _: False, give_up_after=300)
    assert str(played.error).endswith("start the proxy, then run the same command again")


def test_meanwhile_lines_say_what_is_refused_and_when_the_run_ends() -> None:
    played = play(lambda *_: says(429, "slow down"), give_up_after=100)
    assert played.told == [
        f"http://server-0 has answered nothing for {passed} (last: HTTP 429: slow down): the run ends in {left} unless "
        "there is an answer"
        for passed, left in (("3 s", "1 min 37 s"), ("33 s", "1 min 7 s"), ("1 min 33 s", "7 s"))
    ]


@pytest.mark.parametrize(("back", "lines"), [(1.0, 0), (60.0, 3)])
def test_a_longer_outage_is_told_and_its_end(back: float, lines: int) -> None:
    played = down_until(back)
    assert played.error is None
    assert played.answers == 200
    assert len(played.told) == lines
    if lines:
        assert played.told[-1].startswith("http://server-0 answers again after 1 min")


@pytest.mark.parametrize("status", [429, 502, 503, 504, 529])
@pytest.mark.parametrize("replicas", [1, 3])
def test_an_outage_that_a_proxy_hides_costs_time_and_no_request(status: int, replicas: int) -> None:
    """Two attempts are used up in seconds; the server says so for four minutes, and ``/health`` that all is well."""
    script = [lambda now, _: says(status, HTML) if 5 < now < 245 else "fine"] * replicas
    played = play(*script, requests=1000, max_attempts=2)
    assert played.error is None
    assert played.answers == 1000


def test_a_request_that_is_always_told_to_come_later_is_lost_when_a_short_question_is_answered() -> None:
    bad = prompt(199)
    played = play(lambda _, body: says(429, "too large") if asks_for(body) == bad else "fine", max_attempts=2)
    assert played.error is None
    assert played.answers == 199
    assert SHORT_QUESTION in played.asked


PAGE = Fault(FailureCause.MALFORMED_REPLY, "the reply is HTML: Sign in", Retryability.YES, 200)


@pytest.mark.parametrize("said", [PAGE, {"choices": []}, {"choices": [{"index": 0}]}])
def test_a_reply_of_status_200_that_is_no_answer_stops_no_clock(said: Any) -> None:
    """Neither as one to a request nor as one to the short question that is asked when time is up."""
    played = play(lambda *_: said, give_up_after=20, max_attempts=100)
    assert isinstance(played.error, ServerUnreachableError)
    assert "has answered nothing for 20 s" in str(played.error)
    assert played.seconds == pytest.approx(20, abs=1.5)
    assert not [line for line in played.told if "answers again" in line]


def test_an_answer_in_between_starts_the_clock_anew() -> None:
    answered = [0.0]

    def one_a_minute(now: float, _: Body) -> Fault | str:
        if now < answered[-1] + 60:
            return says(429, "slow down")
        answered.append(now)
        return "fine"

    played = play(one_a_minute, requests=20, max_attempts=1000, give_up_after=150)
    assert played.error is None
    assert played.answers == 20
    assert played.seconds > 20 * 60


def test_an_answer_in_the_making_holds_the_end_off() -> None:
    """Fifteen are refused in an instant, again and again; one was taken, and takes ten minutes."""
    taken = prompt(0)
    played = play(
        lambda now, body: "fine" if asks_for(body) == taken or now > 500 else says(429, "slow down"),
        seconds=lambda _, body: 600.0 if asks_for(body) == taken else 0.1,
        requests=16,
        max_attempts=100,
        give_up_after=60,
    )
    assert played.error is None
    assert played.answers == 16
    assert any("unless one of the 1 requests under way is answered" in line for line in played.told)


def test_but_attempts_that_hang_like_those_before_them_do_not() -> None:
    played = play(lambda *_: says(504, "upstream timed out"), seconds=50.0, give_up_after=120)
    assert isinstance(played.error, ServerUnreachableError)
    # The short question takes as long, for which a real clock waits ten seconds.
    assert played.seconds == pytest.approx(50 + 120 + 50)


def test_requests_that_fail_on_their_own_account_end_no_run() -> None:
    """The last two fail whenever they are asked: a short question is answered, so they use up their attempts."""
    bad = {prompt(198), prompt(199)}
    played = play(lambda _, body: BROKEN if asks_for(body) in bad else "fine", give_up_after=10)
    assert played.error is None
    assert played.answers == 198
    assert {failure.attempts for failure in played.failures} == {8}
    assert SHORT_QUESTION in played.asked


def test_a_client_that_gave_up_tries_again_when_it_is_asked_again() -> None:
    time = VirtualTime()

    async def twice() -> None:
        async with OpenAIModel(
            ModelSpec(base_url="http://host", model="m", give_up_after=20),
            api_key=None,
            clock=time.clock,
            sleep=time.sleep,
        ) as model:

            async def attempt(payload: bytes, read: Callable[[bytes], Any]) -> Any:
                is_up = time.now > 1100
                return read(json.dumps(reply_with("fine", json.loads(payload))).encode()) if is_up else NO_CONNECTION

            model.endpoints[0].__dict__["attempt"] = attempt
            with pytest.raises(ServerUnreachableError):
                await model.ask(request(0))
            await time.sleep(200)
            assert isinstance(await model.ask(request(0)), Answer)

    asyncio.run(time.run(twice()))


# --- the server asks to wait -------------------------------------------------------------------------------------


@pytest.mark.parametrize("concurrency", [1, 16])
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("begin", [0.0, 10.0])
def test_a_wait_that_is_longer_than_the_limit_ends_the_run_at_once(concurrency: int, status: int, begin: float) -> None:
    quota = says(status, "quota exceeded", Retry_After="83520")
    played = play(
        lambda now, _: "fine" if now < begin else quota,
        healthy=lambda now: status == 429 or now < begin,
        requests=1000,
        seconds=0.5,
        concurrency=concurrency,
        give_up_after=20,
    )
    assert str(played.error) == (
        f"http://server-0 asks to wait 23 h 12 min (HTTP {status}: quota exceeded), longer than --give-up-after (20 s)"
        "; the answers so far are kept: run the same command again after that"
    )
    assert played.seconds == pytest.approx(begin, abs=1)


def test_one_that_asks_to_wait_while_others_are_answered_ends_nothing() -> None:
    taken = prompt(3)
    first = itertools.count()
    played = play(
        lambda _, body: says(429, "no", Retry_After="83520") if asks_for(body) == taken and not next(first) else "fine",
        give_up_after=20,
    )
    assert played.error is None
    assert played.answers == 200


def test_a_wait_within_the_limit_is_waited_for_in_full() -> None:
    played = play(lambda now, _: "fine" if now > 200 else says(429, "", Retry_After="200"), give_up_after=300)
    assert played.error is None
    assert max(Counter(played.asked).values()) == 2


def test_replicas_end_the_run_only_if_each_asks_to_wait() -> None:
    quota = says(429, "quota exceeded", Retry_After="83520")
    both = play(lambda *_: quota, lambda *_: quota, give_up_after=20)
    assert str(both.error).startswith("each of 2 endpoints asks to wait 23 h 12 min")
    assert both.seconds < 2
    beside = play(
        lambda *_: says(401, "who?"), lambda now, _: "fine" if now < 5 else quota, requests=2000, give_up_after=60
    )
    assert str(beside.error).startswith("http://server-1 asks to wait 23 h 12 min (HTTP 429: quota exceeded), longer")
    assert "and the other endpoints refuse every request" in str(beside.error)
    assert beside.seconds < 10
    one = play(lambda *_: quota, lambda *_: "fine", give_up_after=20)
    assert one.error is None
    assert one.answers == 200


# --- refusals that asking again cannot change --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (says(400, "max_tokens is not supported"), "max_tokens is not supported.*change the setting"),
        (says(401, "token expired"), r"check the key: it is read from the environment variable OPENAI_API_KEY"),
        (says(402, "no credit left"), "no credit left.*see to the account"),
        (says(403, "not for you"), "see what the key may do"),
        (says(404, "no such model"), "check the address and the model's name, 'm'"),
        (says(422, "extra fields"), "change the setting"),
    ],
)
def test_the_same_refusal_for_all_ends_the_run(fault: Fault, words: str) -> None:
    played = play(lambda now, _: "fine" if now < 1 else fault, requests=1000, concurrency=4)
    assert isinstance(played.error, ServerRefusedError)
    with pytest.raises(ServerRefusedError, match=rf"http://server-0 refuses every request \(HTTP .*{words}"):
        raise played.error
    assert "the answers so far are kept" in str(played.error)
    assert played.answers > 30
    assert 29 <= len(played.failures) <= 34


def test_answers_in_the_making_are_waited_for_before_everything_else_that_is_refused_ends_the_run() -> None:
    """The key expires while three requests are being worked on, for minutes; all others are refused at once."""
    slow = {prompt(number) for number in range(3)}
    played = play(
        lambda _, body: "fine" if asks_for(body) in slow else says(401, "token expired"),
        seconds=lambda _, body: 600.0 if asks_for(body) in slow else 0.01,
        concurrency=8,
    )
    assert isinstance(played.error, ServerRefusedError)
    assert played.answers == 3
    assert played.told[0].endswith("(HTTP 401: token expired): the run ends unless one of the 3 under way is answered")


def test_before_any_answer_three_suffice_where_it_is_about_the_key_or_the_address() -> None:
    played = play(lambda *_: says(401, "who?"), concurrency=1)
    assert isinstance(played.error, ServerRefusedError)
    assert len(played.asked) == 4


def test_prompts_that_are_refused_end_no_run() -> None:
    """A hundred in a row are too much for the server, before any is answered: a short question is not."""
    long = [request(number, length=100) for number in range(100)]
    played = play(
        lambda _, body: says(413, "Request Entity Too Large") if len(asks_for(body)) > 500 else "fine",
        requests=[*long, *map(request, range(100, 200))],
    )
    assert played.error is None
    assert played.answers == 100
    assert played.asked.count(SHORT_QUESTION) <= 2


def test_a_firewall_that_takes_prompts_for_attacks_ends_no_run_either() -> None:
    played = play(lambda _, body: "fine" if asks_for(body) == SHORT_QUESTION else says(403, "blocked"), concurrency=1)
    assert played.error is None
    assert len(played.failures) == 200


def test_answers_between_refusals_keep_it_going() -> None:
    played = play(
        lambda _, body: "fine" if asks_for(body) == prompt(20) else says(400, "no"), requests=30, concurrency=1
    )
    assert played.error is None
    assert len(played.failures) == 29


def test_replicas_that_all_refuse_end_the_run() -> None:
    played = play(*[lambda *_: says(401, "who?")] * 3)
    assert str(played.error).startswith("each of 3 endpoints refuses every request (HTTP 401: who?)")


def test_one_replica_that_refuses_loses_nothing() -> None:
    played = play(lambda *_: says(401, "who?"), *[lambda *_: "fine"] * 2, max_attempts=2)
    assert played.error is None
    assert played.answers == 200
    assert played.told == ["http://server-0 is set aside: HTTP 401: who?"]


UNREADABLE = {"choices": [{"index": 0, "message": {"content": {"parts": 7}}, "finish_reason": "stop"}]}


def test_one_replica_whose_replies_cannot_be_read_loses_nothing() -> None:
    played = play(lambda *_: UNREADABLE, lambda *_: "fine")
    assert played.error is None
    assert played.answers == 200
    assert [line for line in played.told if line.startswith("http://server-0 is set aside: content of a shape")]
    assert len(played.asked) < 250


def test_an_answer_that_no_replica_gives_readably_is_lost_alone() -> None:
    odd = prompt(7)
    played = play(*[lambda _, body: UNREADABLE if asks_for(body) == odd else "fine"] * 2)
    assert played.error is None
    assert played.answers == 199
    assert [failure.cause for failure in played.failures] == [FailureCause.UNREADABLE_REPLY]
    assert played.asked.count(odd) == 2


def test_a_replica_that_refuses_the_key_is_not_back_because_it_is_healthy_but_because_it_answers() -> None:
    takes_key = 60
    played = play(
        lambda now, _: "fine" if now > takes_key else says(401, "who?"), lambda *_: "fine", requests=2000, concurrency=2
    )
    assert played.error is None
    assert played.answers == 2000
    assert played.told == ["http://server-0 is set aside: HTTP 401: who?", "http://server-0 is back"]


# --- replicas, all of which are away -----------------------------------------------------------------------------


def test_a_pool_is_given_up_when_time_is_up_however_far_apart_its_looks_are() -> None:
    played = play(*[lambda *_: NO_CONNECTION] * 3, healthy=lambda _: False, give_up_after=300)
    assert str(played.error).startswith(
        "nothing has answered at any of http://server-0, http://server-1, http://server-2 for 5 min"
    )
    assert played.seconds == pytest.approx(300, abs=1)


def test_a_bad_request_is_told_though_the_other_replica_is_away() -> None:
    played = play(
        lambda *_: says(400, "bad"),
        lambda *_: NO_CONNECTION,
        requests=1,
        concurrency=1,
        give_up_after=300,
        healthy=lambda _: False,
    )
    assert played.error is None
    assert [failure.status for failure in played.failures] == [400]
    assert played.seconds < 5
