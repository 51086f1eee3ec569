"""How long the rest of a run takes, by how fast samples are answered now."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import pytest

from assay.reports.pace import Pace
from assay.reports.progress import ProgressLines
from assay.types import Answer, Failure, FailureCause, Request, Response, Sample


def test_the_first_slow_answers_are_forgotten() -> None:
    """The first sixteen take a minute; then one comes every tenth of a second."""
    pace = Pace()
    for _ in range(16):
        pace.answered(60.0)
    for number in range(1, 41):
        pace.answered(60.0 + number / 10)
    assert pace.seconds_for(1000, 16, 64.0) == pytest.approx((100, 100), rel=0.05)


def test_answers_that_come_in_together_are_counted_together() -> None:
    pace = Pace()
    for turn in range(1, 6):
        for _ in range(32):
            pace.answered(10.0 * turn)
    assert pace.seconds_for(320, 32, 50.0) == pytest.approx((100, 100), rel=0.35)


def test_it_is_too_early_to_tell_before_every_place_has_had_its_answer() -> None:
    pace = Pace()
    for _ in range(16):
        pace.answered(1.0)
    assert pace.seconds_for(100, 16, 2.0) is None


def test_while_nothing_is_answered_the_time_left_grows() -> None:
    pace = Pace()
    for number in range(100):
        pace.answered(float(number))
    soon, late = pace.seconds_for(100, 4, 100.0), pace.seconds_for(100, 4, 400.0)
    assert soon is not None
    assert late is not None
    assert min(late) > 5 * max(soon)


def test_a_pace_that_changes_is_told_as_a_range() -> None:
    pace = Pace()
    for number in range(80):
        pace.answered(float(number))
    for number in range(1, 41):
        pace.answered(79.0 + number / 10)
    least, most = pace.seconds_for(100, 4, 83.0) or (0.0, 0.0)
    assert least == pytest.approx(10, rel=0.1)
    assert most > 3 * least


def test_tokens_cut_offs_and_the_servers_queue_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    said = io.StringIO()
    progress = ProgressLines(said)
    progress.loaded({"task": 3}, 0, Path("run.journal"))
    progress.limited(8)
    progress.server_busy(6, 2)
    for number in range(3):
        request = Request("task", number, 0, 0, "generate_until", b"{}", f"key-{number}")
        answer = Answer(text="x", completion_tokens=100, finish_reason="length" if number else "stop")
        progress.responded(request, answer)
        progress.completed(Sample("task", number, None, [], [request]), [answer])
    last = said.getvalue().splitlines()[-1]
    assert "tokens/s" in last
    assert "2 cut off" in last
    assert "6 running and 2 waiting at the server" in last
    progress.server_busy(6, 0)
    assert "waiting" not in ", ".join(progress._status_words(3, 3, 1.0))


def lines(monkeypatch: pytest.MonkeyPatch, *, asked: bool, response: Response) -> str:
    """What is said of 1,000 samples after 500 of them, one a second."""
    clock = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)) / 3)
    said = io.StringIO()
    progress = ProgressLines(said)
    progress.loaded({"task": 1000}, 0 if asked else 500, Path("run.journal"))
    for number in range(500):
        request = Request("task", number, 0, 0, "generate_until", b"{}", f"key-{number}")
        if asked:
            progress.responded(request, response)
        progress.completed(Sample("task", number, None, [], [request]), [response])
    return said.getvalue()


def test_samples_that_were_kept_or_failed_say_nothing_of_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, failure = Answer(text="8"), Failure(cause=FailureCause.SERVER_ERROR, message="HTTP 502")
    assert " left" in lines(monkeypatch, asked=True, response=answer)
    assert " left" not in lines(monkeypatch, asked=False, response=answer)
    assert " left" not in lines(monkeypatch, asked=True, response=failure)
