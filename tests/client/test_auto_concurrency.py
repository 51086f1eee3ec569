"""The limit of outstanding requests: rises while it pays, keeps queues short, falls on overload, has its bounds."""

from __future__ import annotations

import heapq
import random
import resource
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client.auto_concurrency import MOST, START, AutoConcurrency, concurrency_of, most_connections
from assay.client.concurrency import Concurrency, Sent, ServerLoad
from assay.types import Answer, Failure, FailureCause, ModelSpec

ANSWER = Answer(text="", completion_tokens=2)
LOGLIKELIHOOD = Answer(text=None, logprob=-1.0, is_greedy=True, completion_tokens=1)


def fill(limited: Concurrency, now: float = 0.0) -> list[Sent]:
    return [limited.sent(now) for _ in range(limited.limit - limited.in_flight)]


def serve(limited: Concurrency, slots: int, requests: int, seed: int = 1) -> None:
    """A server of so many slots, each of which makes ten tokens a second; first come, first served."""
    rng = random.Random(seed)
    free = [0.0] * slots
    out: list[tuple[float, int, Sent, int]] = []
    now, sent = 0.0, 0
    while sent < requests or out:
        while sent < requests and limited.in_flight < limited.limit:
            tokens = rng.randint(20, 200)
            begin = max(now, heapq.heappop(free))
            heapq.heappush(free, begin + tokens / 10)
            heapq.heappush(out, (begin + tokens / 10, sent, limited.sent(now), tokens))
            sent += 1
        now, _, ticket, tokens = heapq.heappop(out)
        limited.ended(ticket, "task", Answer(text="", completion_tokens=tokens), now)


def test_what_the_specification_says() -> None:
    fixed = concurrency_of(ModelSpec(base_url="http://host", model="m", concurrency=7))
    assert (fixed.limit, fixed.is_searching) == (7, False)
    auto = concurrency_of(ModelSpec(base_url="http://host", model="m"))
    assert (auto.limit, auto.is_searching) == (START, True)
    assert AutoConcurrency(most=3).limit == 3


@pytest.mark.parametrize(("files", "most"), [(1024, 896), (100, 1), (resource.RLIM_INFINITY, MOST)])
def test_it_opens_no_more_connections_than_the_process_may(
    files: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert most_connections() == most


def test_a_fixed_limit_stays_whatever_happens() -> None:
    fixed = Concurrency(5)
    for sent in fill(fixed):
        fixed.failed(FailureCause.RATE_LIMITED, began=0, now=1)
        fixed.ended(sent, "task", Failure(cause=FailureCause.RATE_LIMITED, message=""), 1)
    fixed.loaded(ServerLoad(0, 1000), 2)
    assert fixed.limit == 5
    assert fixed.summary() == {"final": 5, "peak": 5, "decided_by": "user"}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("slots", [1, 4, 64, 200, 1000])
def test_without_gauges_it_ends_near_the_number_of_slots(slots: int, seed: int) -> None:
    limited = AutoConcurrency()
    serve(limited, slots, requests=20 * max(slots, 50), seed=seed)
    assert min(slots, 16) <= limited.limit <= max(4 * slots, 64)
    assert limited.limit >= slots / 1.2 or slots <= 16
    assert limited.summary()["decided_by"] in ("throughput", "start")


def test_it_doubles_as_soon_as_a_few_answers_show_that_it_pays() -> None:
    limited = AutoConcurrency()
    serve(limited, slots=10_000, requests=3000)
    assert limited.limit >= 512


def test_it_never_exceeds_what_is_allowed() -> None:
    limited = AutoConcurrency(most=100)
    serve(limited, slots=10_000, requests=3000)
    assert limited.limit == 100


# -- the server's own gauges ------------------------------------------------------------------------------------------


def load(limited: Concurrency, batch: int) -> ServerLoad:
    return ServerLoad(min(batch, limited.in_flight), max(0, limited.in_flight - batch))


@pytest.mark.parametrize("batch", [1, 4, 100, 256, 3000])
def test_a_tenth_as_many_wait_as_run(batch: int) -> None:
    limited = AutoConcurrency()
    out: list[Sent] = []
    for second in range(200):
        out += fill(limited, second)
        limited.loaded(load(limited, batch), second + 0.5)
        for _ in range(min(len(out), max(1, batch // 4))):
            limited.ended(out.pop(0), "task", ANSWER, second + 0.9)
    assert batch < limited.limit <= batch * 1.25 + 1
    assert limited.summary()["decided_by"] == "queue"


@pytest.mark.parametrize("running", [0, 1])
def test_gauges_told_between_steps_say_nothing_of_requests_that_take_one(running: int) -> None:
    """As vLLM's were seen to be in runs of log-likelihoods: 0 running, 7 waiting, and 1 with a prompt read in part."""
    limited = AutoConcurrency()
    out: list[Sent] = []
    for second in range(200):
        out += fill(limited, second)
        done, out = out[:8], out[8:]
        for sent in done:
            limited.ended(sent, "task", LOGLIKELIHOOD, second + 0.9)
        limited.loaded(ServerLoad(running, len(out)), second + 0.95)
    assert limited.limit >= START
    assert limited.summary()["decided_by"] in ("throughput", "start")


def test_a_queue_of_a_moment_changes_nothing() -> None:
    limited = AutoConcurrency()
    fill(limited)
    for second in range(20):
        limited.loaded(ServerLoad(8, 8) if second % 3 else ServerLoad(15, 1), second)
    assert limited.limit == START


def test_gauges_that_do_not_show_our_requests_are_ignored() -> None:
    limited = AutoConcurrency()
    fill(limited)
    for second in range(20):
        limited.loaded(ServerLoad(2, 0), second)
    assert limited.limit == START
    assert limited.summary()["decided_by"] == "start"


def test_a_queue_of_others_does_not_starve_us() -> None:
    limited = AutoConcurrency()
    out = fill(limited)
    for second in range(50):
        limited.loaded(ServerLoad(256, 1000), second)
        limited.ended(out.pop(0), "task", ANSWER, second)
        out += fill(limited, second)
    assert limited.limit == START


# -- overload ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", [FailureCause.RATE_LIMITED, FailureCause.TIMED_OUT])
def test_overload_halves_the_limit_once_for_all_that_was_out(cause: FailureCause) -> None:
    limited = AutoConcurrency()
    fill(limited)
    for _ in range(10):
        limited.failed(cause, began=0.0, now=5.0)
    assert limited.limit == START // 2
    limited.failed(cause, began=6.0, now=7.0)
    assert limited.limit == START // 4
    assert limited.summary()["falls"] == {cause.value: 2}


def test_single_errors_are_no_overload_but_many_are() -> None:
    limited = AutoConcurrency()
    for second in range(200):
        sent = limited.sent(second)
        if second % 16 == 0:
            limited.failed(FailureCause.SERVER_ERROR, began=second, now=second)
        limited.ended(sent, "task", ANSWER, second)
    assert limited.summary()["falls"] == {}
    for second in range(200, 208):
        limited.failed(FailureCause.SERVER_ERROR, began=second, now=second)
    assert limited.summary()["falls"] == {"server_error": 1}


def test_what_is_wrong_with_a_request_is_no_overload() -> None:
    limited = AutoConcurrency()
    for second in range(100):
        limited.failed(FailureCause.CONTEXT_TOO_LONG, began=second, now=second)
        limited.failed(FailureCause.BAD_REQUEST, began=second, now=second)
    assert limited.limit == START


def test_an_outage_counts_once_however_often_the_server_is_tried() -> None:
    limited = AutoConcurrency()
    limited.failed(FailureCause.UNREACHABLE, began=0.0, now=0.0)
    assert limited.limit == START  # it may not be up yet
    limited.ended(limited.sent(1.0), "task", ANSWER, 2.0)
    for second in range(3, 300):
        limited.failed(FailureCause.UNREACHABLE, began=second, now=second)
    assert limited.limit == START // 2


def test_after_a_fall_it_rises_slowly_to_where_it_was() -> None:
    limited = AutoConcurrency()
    limited.failed(FailureCause.RATE_LIMITED, began=0.0, now=0.0)
    limits, out, now = [], fill(limited), 0.0
    for _ in range(1000):
        now += 0.1
        limited.ended(out.pop(0), "task", ANSWER, now)
        out += fill(limited, now)
        limits.append(limited.limit)
    until_back = limits.index(START)
    assert limits[0] == START // 2
    assert all(after - before <= 1 for before, after in pairwise(limits[:until_back]))
    assert until_back >= 350  # one more every five seconds
    assert set(limits[until_back : until_back + 100]) == {START}


def test_a_request_that_failed_waits_for_room_before_it_tries_again() -> None:
    limited = AutoConcurrency()
    sent = fill(limited)
    limited.failed(FailureCause.RATE_LIMITED, began=0.0, now=1.0)
    rooms = []
    with limited.pause():
        rooms.append(limited.has_room)
        for _ in range(START // 2):
            limited.ended(sent.pop(), "task", ANSWER, 2.0)
        rooms.append(limited.has_room)
    rooms.append(limited.has_room)
    assert rooms == [False, True, False]


def test_after_a_time_out_it_stays_away_from_where_that_was() -> None:
    limited = AutoConcurrency()
    limited.failed(FailureCause.TIMED_OUT, began=0.0, now=0.0)
    out, now = fill(limited), 0.0
    for _ in range(5000):
        now += 0.1
        limited.ended(out.pop(0), "task", ANSWER, now)
        out += fill(limited, now)
    assert limited.limit == 0.75 * START


# -- whatever happens -------------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.integers(0, 2000), st.sampled_from(["a", "b"])),
        st.tuples(st.just("failure"), st.sampled_from(list(FailureCause)), st.booleans()),
        st.tuples(st.just("load"), st.integers(0, 5000), st.integers(0, 5000)),
        st.tuples(st.just("time"), st.floats(0, 100), st.none()),
    ),
    max_size=200,
)


@given(events=EVENTS, most=st.integers(1, 2 * MOST))
def test_the_limit_stays_between_one_and_the_most(events: list[tuple[str, Any, Any]], most: int) -> None:
    limited = AutoConcurrency(most)
    now, out = 0.0, fill(limited)
    for kind, first, second in events:
        match kind:
            case "answer" if out:
                limited.ended(out.pop(0), second, Answer(text=None, completion_tokens=first), now)
            case "failure":
                limited.failed(first, began=now if second else 0.0, now=now)
            case "load":
                limited.loaded(ServerLoad(first, second), now)
            case "time":
                now += first
        out += fill(limited, now)
        assert 1 <= limited.limit <= most
        assert limited.in_flight == len(out)
        assert limited.bound >= len(out)
    summary = limited.summary()
    assert summary["final"] == limited.limit <= summary["peak"] <= most
