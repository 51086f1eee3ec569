"""What nobody can have meant is refused by the task's name, before any request."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import TaskConfigError
from assay.tasks.gen_kwargs import generation_fault, near_misses, parse_gen_kwargs
from assay.tasks.settings_check import setting_warnings, validate_settings
from assay.types import TaskOptions
from tests.small_tasks import MakeTask


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": "many"}, "repeats is 'many'; it must be a whole number of at least 1"),
        ({"repeats": -1}, "repeats is -1"),
        ({"repeats": 0}, "repeats is 0"),
        ({"repeats": True}, "repeats is True"),
        ({"generation_kwargs": {"until": [1]}}, r"generation_kwargs: until is \[1\]; it must be a text or a list"),
        ({"generation_kwargs": {"max_gen_toks": 0}}, "generation_kwargs: max_gen_toks is 0"),
        (
            {"filter_list": [{"name": "f", "filter": [{"function": "regex", "regex_pattern": "("}]}]},
            "filter 'f' cannot",
        ),
        ({"filter_list": [{"name": "f", "filter": [{"function": "regex", "regex_pattern": 5}]}]}, "filter 'f' cannot"),
    ],
    ids=str,
)
def test_odd_settings(make_task: MakeTask, change: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskConfigError, match=f"task 'small': {message}"):
        validate_settings({"small": make_task(**change)})


def test_usual_settings(make_task: MakeTask) -> None:
    validate_settings({"a": make_task(), "b": make_task(repeats=3, generation_kwargs=None)})


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"until": None},
        {"until": "a"},
        {"until": []},
        {"max_tokens": 1, "temperature": 0.5, "stop": ["x"], "n": None},
    ],
    ids=str,
)
def test_settings_that_can_be_meant(settings: dict[str, Any]) -> None:
    assert generation_fault(settings) is None


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"until": 5}, "until is 5"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_gen_toks": 2.5}, "max_gen_toks is 2.5"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"top_p": float("nan")}, "they cannot be sent"),
        ({"stop": 1j}, "they cannot be sent"),
    ],
    ids=str,
)
def test_settings_that_cannot(settings: dict[str, Any], fault: str) -> None:
    assert str(generation_fault(settings)).startswith(fault)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("temperatur=0.5", "temperature"),
        ("Top-P=0.9", "top_p"),
        ("top_k=3, top_p=0.9", "top_p"),
        ("max_gen_tok=9", "max_gen_toks"),
        ("max_new_tokens=9,my_own_setting=1,temperature=0,guided_regex=x", None),
    ],
)
def test_a_near_miss_of_a_known_setting_is_asked_about(given: str, meant: str | None) -> None:
    assert list(near_misses(parse_gen_kwargs(given)).values()) == ([] if meant is None else [meant])


def test_a_tasks_own_near_miss_and_a_limit_between_two_numbers_are_said(make_task: MakeTask) -> None:
    task = make_task(generation_kwargs={"until": ["\n"], "temprature": 0.5})
    assert setting_warnings({"small": task}, TaskOptions(limit=5.7)) == [
        "limit is 5.7: above 1 it counts documents, 5 of each task",
        "task 'small' has the generation setting 'temprature': does it mean 'temperature'?",
    ]
    assert setting_warnings({"small": make_task()}, TaskOptions(limit=0.5)) == []


def test_options_that_do_not_count_are_said(make_task: MakeTask) -> None:
    options = TaskOptions(num_fewshot=5, gen_kwargs={"temperature": 1})
    choices = {"output_type": "multiple_choice", "doc_to_choice": ["0", "2"], "doc_to_target": 0, "metric_list": None}
    choosing = make_task(options=options, num_fewshot=0, filter_list=None, generation_kwargs=None, **choices)
    found = setting_warnings({"small": choosing}, options)
    assert [line.partition(",")[0] for line in found] == [
        "num_fewshot = 5 does not count for small: as in lm-eval",
        "gen_kwargs do not count here: they are for generated answers",
    ]
    assert setting_warnings({"small": make_task(options=options)}, options) == []
