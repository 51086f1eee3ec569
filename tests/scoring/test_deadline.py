"""Foreign code that runs too long is interrupted; nothing else is."""

import re
import signal
import sys
import threading
import time
from types import FrameType

import pytest

from assay.scoring.deadline import Deadline, DeadlineError

pytestmark = pytest.mark.slow


def test_a_regular_expression_that_backtracks_without_end_is_interrupted() -> None:
    deadline = Deadline(0.1)
    with deadline.watching(), pytest.raises(DeadlineError, match=r"0\.1 s"), deadline:
        re.match(r"(a+)+$", "a" * 64 + "b")


def test_so_is_a_loop_and_the_next_block_has_its_own_time() -> None:
    def loop() -> None:
        while True:
            pass

    deadline = Deadline(1)
    with deadline.watching():
        for _ in range(2):
            with pytest.raises(DeadlineError), deadline:
                loop()
        with deadline:
            pass


def test_time_outside_the_blocks_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadline = Deadline(3600)
    with deadline.watching():
        for _ in range(3):
            with deadline:
                signal.raise_signal(signal.SIGALRM)
            now += 4000
            signal.raise_signal(signal.SIGALRM)


def test_an_alarm_as_a_block_ends_leaves_no_block_open(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadline = Deadline(3600)

    def ring_at_the_end(frame: FrameType, event: str, _: object) -> None:
        nonlocal now
        if frame.f_code is Deadline.__exit__.__code__ and event == "call":
            now += 4000
            deadline._look(signal.SIGALRM, frame)

    with deadline.watching():
        sys.setprofile(ring_at_the_end)
        try:
            with deadline:
                pass
        finally:
            sys.setprofile(None)
        assert now == 4000
        signal.raise_signal(signal.SIGALRM)


def test_an_error_in_a_block_is_passed_on() -> None:
    deadline = Deadline(5)
    with deadline.watching(), pytest.raises(KeyError), deadline:
        raise KeyError


def test_the_alarm_is_given_back() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(KeyError), Deadline(5).watching():
        raise KeyError
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_in_another_thread_it_bounds_nothing_and_harms_nothing() -> None:
    passed = threading.Event()

    def work() -> None:
        deadline = Deadline(0.01)
        with deadline.watching(), deadline:
            time.sleep(0.05)
        passed.set()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert passed.is_set()
