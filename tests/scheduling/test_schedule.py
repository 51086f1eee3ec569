"""The task with the longest answers first; each task in its own order, everything once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from assay.scheduling.schedule import LongestFirst, Stream
from assay.types import Answer, Failure, FailureCause, Response, Sample


def stream(name: str, count: int, expected: float) -> Stream:
    return Stream([name], (Sample(name, number, {}, [], []) for number in range(count)), expected)


def answered(tokens: int | None, text: str = "") -> Sequence[Response]:
    return [Answer(text=text, completion_tokens=tokens)]


def drawn(schedule: LongestFirst, lengths: dict[str, int]) -> list[str]:
    """The tasks' names in the order of their samples, each answered at once."""
    names = []
    for sample in schedule:
        names.append(sample.task)
        schedule.learn(sample, answered(lengths[sample.task]))
    return names


def test_the_task_with_the_longest_answers_comes_first_whatever_was_expected_of_it() -> None:
    lengths = {"short": 20, "long": 900, "middle": 200}
    schedule = LongestFirst([stream("short", 500, 4096), stream("long", 300, 256), stream("middle", 300, 512)])
    names = drawn(schedule, lengths)
    assert set(names[:12]) == set(lengths)
    # Afterwards in blocks, but for scouts of short answers at first.
    rest = [name for name in names[12:] if name != "short"]
    assert rest == sorted(rest, key=lambda name: -lengths[name])
    assert set(names[-300:]) == {"short"}


def test_a_task_is_not_left_for_one_that_is_hardly_longer() -> None:
    schedule = LongestFirst([stream("a", 200, 256), stream("b", 200, 256)])
    names = drawn(schedule, {"a": 100, "b": 110})[8:]
    changes = sum(before != after for before, after in pairwise(names))
    assert changes <= 2 * 512 // 12  # the scouts' turns, and then none
    assert len(set(names[-100:])) == 1


def test_choices_of_a_single_token_come_last_and_are_not_tried_first() -> None:
    schedule = LongestFirst([stream("choices", 50, 1), stream("text", 50, 256)])
    assert drawn(schedule, {"choices": 1, "text": 5}) == ["text"] * 50 + ["choices"] * 50


def test_what_the_server_does_not_count_is_estimated_and_failures_tell_nothing() -> None:
    schedule = LongestFirst([stream("letters", 20, 10), stream("failing", 20, 100)])
    tried = list(islice(schedule, 8))
    for sample in tried:
        failure: Response = Failure(cause=FailureCause.TIMED_OUT, message="")
        schedule.learn(sample, [failure] if sample.task == "failing" else answered(None, "x" * 4000))
    assert {sample.task for sample in islice(schedule, 12)} == {"letters"}


@given(
    sizes=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 3000)), max_size=8),
    lengths=st.lists(st.integers(0, 5000), min_size=1, max_size=50),
)
def test_everything_once_and_each_task_in_its_own_order(sizes: list[tuple[int, int]], lengths: list[int]) -> None:
    schedule = LongestFirst([stream(str(place), count, expected) for place, (count, expected) in enumerate(sizes)])
    seen: dict[str, list[int]] = {}
    late: list[Sample] = []
    for number, sample in enumerate(schedule):
        seen.setdefault(sample.task, []).append(sample.doc_id)
        late.append(sample)
        if number % 3 == 0:
            schedule.learn(late.pop(number % len(late)), answered(lengths[number % len(lengths)]))
    assert seen == {str(place): list(range(count)) for place, (count, _) in enumerate(sizes) if count}
