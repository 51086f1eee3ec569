"""lm-eval's own filters are kept from one use to the next; those of tasks are made for each, as lm-eval does."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

from lm_eval.filters.custom import CustomFilter
from lm_eval.filters.extraction import RegexFilter

from assay.tasks.patches.filters import are_of_library, cache_filters


class Counting:
    """Holds something between its uses, so that it must not be used twice."""

    def __init__(self) -> None:
        self.seen = 0

    def apply(self, resps: Any, docs: Any) -> Any:
        for resp in resps:
            self.seen += 1
            yield [f"{self.seen}. {text}" for text in resp]


def task_with(*makers: Any) -> Any:
    return SimpleNamespace(_filters=[SimpleNamespace(name="chosen", filters=list(makers))])


def test_filters_of_the_library_are_kept_and_those_of_tasks_are_not() -> None:
    task = task_with(partial(RegexFilter, r"\d"), Counting)
    [ensemble] = cache_filters(task)
    [ensemble] = cache_filters(task)
    regex, counting = ensemble.filters
    assert regex() is regex()
    assert counting() is not counting()
    assert list(regex().apply([["a 5"], ["none"]], [{}, {}])) == [["5"], ["[invalid]"]]


def test_whose_filters_they_are() -> None:
    library = partial(RegexFilter, r"\d")
    assert are_of_library(cache_filters(task_with(library, library)))
    assert are_of_library([])
    assert not are_of_library(cache_filters(task_with(library, Counting)))
    assert not are_of_library(cache_filters(task_with(library, partial(CustomFilter, filter_fn=sorted))))
