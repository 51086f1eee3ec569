"""Scores and sample lines beside those of lm-eval's own ``evaluate``, and what bad answers and bad scorers do."""

import json
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay._util.spool import Spool
from assay.scoring.deadline import Deadline, DeadlineError
from assay.scoring.sample_scores import AnsweredSample, Scored, Scorer
from assay.scoring.task_scores import TaskScores
from assay.tasks.patches.exact_match import cache_exact_matches
from assay.tasks.requests import RequestWriter, samples
from assay.types import (
    Answer,
    CompleteSample,
    EndpointKind,
    Failure,
    FailureCause,
    ModelSpec,
    Outcome,
    Response,
    Sample,
    TaskOptions,
)
from tests.small_tasks import Call, MakeTask

ANSWERS = ["0", "The answer is 2.", "4, or 5", "", "no number", "١٠", "ten 🎉 \u2028\x7f", "\ud800 14", "16\n\n", "18"]
"""One for each document of the small task."""


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path) as opened:
        yield opened


def built(task: Any, endpoint: EndpointKind = "chat") -> list[Sample]:
    writer = RequestWriter(ModelSpec(base_url="http://127.0.0.1:1", model="m", endpoint=endpoint))
    return list(samples("small", task, writer, TaskOptions()))


def score(
    task: Any,
    spool: Spool,
    answers: Sequence[str | None],
    *,
    order: Sequence[int] | None = None,
    together: int = 4,
) -> TaskScores:
    scores = TaskScores("small", task, spool, Deadline(0.5))
    made = built(task)
    complete = [
        CompleteSample(made[place], [Answer(text=answers[place % len(answers)]) for _ in made[place].requests])
        for place in order or range(len(made))
    ]
    with scores._deadline.watching():
        for first in range(0, len(complete), together):
            scores.receive(complete[first : first + together])
    return scores


def lines_of(scores: TaskScores) -> list[Any]:
    return [json.loads(line) for line in scores.sample_lines()]


# -- the same as lm-eval's --------------------------------------------------------------------------------------------


def lm_evals(task: Any, answers: Sequence[str], folder: Path) -> tuple[dict[str, Any], list[Any]]:
    """Results and sample lines of lm-eval's own code, from the questions to the file."""
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.api_models import JsonChatStr

    class Answering(LM):  # type: ignore[misc]
        tokenizer_name = "none"

        def apply_chat_template(self, chat_history: Any, add_generation_prompt: bool = True) -> Any:
            return JsonChatStr(json.dumps(chat_history, ensure_ascii=False))

        def chat_template(self, _: Any = False) -> str:
            return ""

        def generate_until(self, requests: Any) -> list[str]:
            return [answers[request.doc_id % len(answers)] for request in requests]

        def loglikelihood(self, requests: Any) -> Any:
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    results = evaluate(
        Answering(), {"small": task}, bootstrap_iters=0, apply_chat_template=True, fewshot_as_multiturn=True
    )
    assert results is not None
    tracker = EvaluationTracker(output_path=str(folder))
    tracker.general_config_tracker.model_name_sanitized = "m"
    tracker.date_id = "now"
    tracker.save_results_samples("small", results["samples"]["small"])
    text = next(folder.rglob("samples_*.jsonl")).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.split("\n") if line]
    return results["results"]["small"] | {"hash": results.get("task_hashes", {}).get("small")}, lines


OWN_PYTHON = """
import numpy as np

def score(doc, results):
    return {"length": np.int64(len(results[0])), "exact": np.bool_(results[0] == doc["a"]), "value": float("nan")}

def mean(values):
    return float(sum(values)) / len(values)
"""

ODD: dict[str, Any] = {"f": 0.1, "none": None, "list": [[1], []], "record": {"é": 1, "x": None}}

TASKS: dict[str, dict[str, Any]] = {
    "two filters": {},
    "the default filter": {"filter_list": None},
    "case and punctuation count": {"metric_list": [{"metric": "exact_match"}]},
    "numbers are ignored": {"metric_list": [{"metric": "exact_match", "ignore_numbers": True}]},
    "patterns are ignored": {"metric_list": [{"metric": "exact_match", "regexes_to_ignore": ["a", r"\d"]}]},
    "several targets": {"doc_to_target": ["0", "2"], "metric_list": [{"metric": "exact_match"}]},
    "a number as target": {"doc_to_target": "n", "num_fewshot": 0, "metric_list": [{"metric": "exact_match"}]},
    "several answers": {"repeats": 2},
    "metrics of its own": {
        "python": OWN_PYTHON,
        "process_results": Call("score"),
        "metric_list": [{"metric": "length", "aggregation": Call("mean")}, {"metric": "exact", "aggregation": "mean"}],
    },
    "documents with odd values": {"extra": ODD},
}


@pytest.mark.parametrize("kind", TASKS)
def test_scores_lines_and_hashes_are_lm_evals(make_task: MakeTask, spool: Spool, tmp_path: Path, kind: str) -> None:
    answers = [answer.replace("\ud800", "") for answer in ANSWERS]  # lm-eval ends at a lone surrogate
    expected, expected_lines = lm_evals(make_task(**TASKS[kind]), answers, tmp_path / "theirs")
    scores = score(make_task(**TASKS[kind]), spool, answers, order=[7, 2, 9, 0, 1, 3, 8, 4, 6, 5])
    assert scores.failed_samples() == []
    ours = lines_of(scores)
    key = lambda line: (line["filter"], line["doc_id"])  # noqa: E731
    # As text, because NaN does not equal itself, and because the order of keys counts.
    assert [json.dumps(line) for line in sorted(ours, key=key)] == [
        json.dumps(line) for line in sorted(expected_lines, key=key)
    ]
    for (metric, filter_name), values in scores.raw_metrics().items():
        if f"{metric},{filter_name}" in expected and metric != "value":
            assert sum(map(float, values)) / len(values) == pytest.approx(expected[f"{metric},{filter_name}"])


def test_a_lone_surrogate_is_kept_as_an_escape(make_task: MakeTask, spool: Spool) -> None:
    [first, *_] = lines_of(score(make_task(), spool, ["\ud800 14"]))
    assert first["resps"] == [["\ud800 14"]]


def test_remembered_verdicts_are_exact_matchs_own(make_task: MakeTask) -> None:
    from lm_eval.api.metrics import exact_match_fn

    for settings in ({}, {"ignore_case": True}, {"ignore_punctuation": True}, {"regexes_to_ignore": [",", r"\$"]}):
        task = make_task(metric_list=[{"metric": "exact_match", **settings}])
        cache_exact_matches(task)
        cache_exact_matches(task)
        remembered = task._metric_fn_list["exact_match"]
        assert remembered is not exact_match_fn
        for references, predictions in [
            (["A"], ["a"]),
            (["1,0"], ["10"]),
            (["x" * 600], ["x" * 600]),
            (["a", "b"], ["a", "c"]),
        ]:
            expected = exact_match_fn(references=references, predictions=predictions, **settings)
            for _ in range(2):
                got = remembered(references=references, predictions=predictions, **settings)
                assert got == expected
                assert json.dumps(got) == json.dumps(expected)
        other = {"references": ["A"], "predictions": ["a"], "ignore_case": "ignore_case" not in settings}
        assert remembered(**other) == exact_match_fn(**other)


@given(st.text(max_size=5), st.text(max_size=5))
def test_any_pair_of_texts(reference: str, prediction: str) -> None:
    from lm_eval.api.metrics import exact_match_fn

    class Task:
        def __init__(self) -> None:
            self._metric_fn_kwargs = {"exact_match": {"ignore_case": True}}
            self._metric_fn_list = {"exact_match": exact_match_fn}

    task: Any = Task()
    cache_exact_matches(task)
    pair = {"references": [reference], "predictions": [prediction], "ignore_case": True}
    assert task._metric_fn_list["exact_match"](**pair) == exact_match_fn(**pair)


# -- outcomes and failures --------------------------------------------------------------------------------------------


def test_outcomes(make_task: MakeTask, spool: Spool) -> None:
    task = make_task()
    made = built(task)
    scores = TaskScores("small", task, spool, Deadline(5))
    given: list[Answer | Failure] = [
        Answer(text="5", finish_reason="stop"),
        Answer(text="none", finish_reason="stop"),
        Answer(text="5", finish_reason="length"),
        Answer(text="", finish_reason="length"),
        Answer(text=" \n"),
        Answer(text=None),
        Failure(cause=FailureCause.RESET, message="gone"),
    ]
    scores.receive(CompleteSample(sample, [response]) for sample, response in zip(made, given, strict=False))
    assert scores.outcome_counts("number") == {
        Outcome.ANSWERED: 1,
        Outcome.UNEXTRACTED: 1,
        Outcome.TRUNCATED: 2,
        Outcome.EMPTY: 2,
        Outcome.FAILED: 1,
    }
    assert scores.outcome_counts("whole")[Outcome.ANSWERED] == 2, "a filter without a pattern extracts everything"
    assert (scores.scored, scores.done) == (6, 7)
    assert [(failed.doc_id, failed.cause) for failed in scores.failed_samples()] == [(6, FailureCause.RESET)]
    assert 6 not in scores.values_by_document("exact_match", "number")


def test_one_failed_repeat_fails_the_sample(make_task: MakeTask, spool: Spool) -> None:
    task = make_task(repeats=2)
    scores = TaskScores("small", task, spool, Deadline(5))
    half: list[Response] = [Answer(text="0"), Failure(cause=FailureCause.TIMED_OUT, message="slow")]
    scores.receive([CompleteSample(built(task)[0], half)])
    assert (scores.scored, scores.failed[0].cause) == (0, FailureCause.TIMED_OUT)
    assert list(scores.sample_lines()) == []


RAISING = """
def score(doc, results):
    if "4" in results[0]:
        raise ZeroDivisionError("four")
    return {"exact_match": 1.0}
"""


def test_a_scorer_that_raises_fails_its_sample_only(make_task: MakeTask, spool: Spool) -> None:
    task = make_task(RAISING, process_results=Call("score"), filter_list=None)
    scores = score(task, spool, [str(n) for n in range(10)])
    [failed] = scores.failed_samples()
    assert (failed.doc_id, failed.cause) == (4, FailureCause.UNSCORABLE)
    assert failed.message == "the task's scorer failed: four (ZeroDivisionError, own.py line 4)"
    assert scores.scored == 9
    assert len(lines_of(scores)) == 9


def test_a_pattern_that_backtracks_without_end_fails_its_sample_only(make_task: MakeTask, spool: Spool) -> None:
    steps = [{"function": "regex", "regex_pattern": r"(a+)+$"}, {"function": "take_first"}]
    task = make_task(filter_list=[{"name": "slow", "filter": steps}])
    hostile = "a" * 64 + "b"
    scores = score(task, spool, ["aa", "aaa", hostile, "a", "aaaa"])
    assert [failed.doc_id for failed in scores.failed_samples()] == [2, 7]
    assert all("longer than 0.5 s" in failed.message for failed in scores.failed_samples())
    assert scores.scored == 8


@pytest.mark.parametrize("together", [1, 3, 10])
def test_how_many_samples_are_scored_together_changes_nothing(
    make_task: MakeTask, tmp_path: Path, together: int
) -> None:
    steps = [{"function": "regex", "regex_pattern": r"(a+)+$"}, {"function": "take_first"}]
    task = make_task(filter_list=[{"name": "slow", "filter": steps}, {"name": "all", "filter": steps[1:]}])
    answers = ["0", "aaa", "a" * 64 + "b", None, "5 \ud800"]

    def scored(together: int) -> tuple[Any, ...]:
        with Spool(tmp_path) as spool:
            found = score(task, spool, answers, together=together)
            counts = [found.outcome_counts(name) for name in ("slow", "all")]
            return lines_of(found), found.raw_metrics(), found.failed_samples(), counts, found.task_hash()

    assert scored(together) == scored(2)


def test_samples_scored_together_do_not_wait_for_one_that_hangs_as_long_as_it_may_alone(
    make_task: MakeTask, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.scoring.task_scores._TOGETHER_SECONDS", 0.05)
    one_by_one = Scorer.score
    interrupted = []

    def hang_with_several(self: Scorer, answered: Sequence[AnsweredSample]) -> list[tuple[Scored, ...]]:
        end = time.monotonic() + 20 * (len(answered) > 1)
        try:
            while time.monotonic() < end:
                pass
        except DeadlineError:
            interrupted.append(len(answered))
            raise
        return one_by_one(self, answered)

    monkeypatch.setattr(Scorer, "score", hang_with_several)
    task = make_task()
    scores = TaskScores("small", task, spool, Deadline(3600))
    made = built(task)
    with scores._deadline.watching():
        scores.receive([CompleteSample(one, [Answer(text="0") for _ in one.requests]) for one in made])
    assert interrupted == [len(made)]
    assert scores.scored == len(made)


HOSTILE = """
import os
import signal
import sys
import time

def leaves(doc, results):
    if "4" in results[0]:
        sys.exit(0)
    return {"exact_match": 1.0}

def says_nothing(doc, results):
    return {"exact_match": None if "4" in results[0] else 1.0}

def gives_no_dictionary(doc, results):
    return ["4"] if "4" in results[0] else {"exact_match": 1.0}

def swallows(doc, results):
    end = time.monotonic() + 2
    while "4" in results[0] and time.monotonic() < end:
        try:
            time.sleep(0.5)
        except Exception:
            pass
    return {"exact_match": 1.0}

def takes_the_alarm(doc, results):
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.alarm(0)
    end = time.monotonic() + 1
    while "9" in results[0] and time.monotonic() < end:
        pass
    return {"exact_match": 1.0}

def forks(doc, results):
    if "4" in results[0]:
        os.fork()
    return {"exact_match": 1.0}

def unspeakable(doc, results):
    class Mute(Exception):
        def __str__(self):
            raise ValueError
    if "4" in results[0]:
        raise Mute
    return {"exact_match": 1.0}
"""


@pytest.mark.parametrize("function", ["leaves", "says_nothing", "gives_no_dictionary", "swallows", "unspeakable"])
def test_no_scorer_can_end_a_run_or_pass_by_saying_nothing(make_task: MakeTask, spool: Spool, function: str) -> None:
    task = make_task(HOSTILE, process_results=Call(function), filter_list=None)
    scores = score(task, spool, [str(n) for n in range(10)])
    assert [(failed.doc_id, failed.cause) for failed in scores.failed_samples()] == [(4, FailureCause.UNSCORABLE)]
    assert scores.scored == 9


LACKING = """
def score(doc, results):
    return {"some": None if "4" in results[0] else 1.0, "all": float(len(results[0]))}

def of_given(values):
    return sum(value for value in values if value is not None)

def of_all(values):
    if None in values:
        raise TypeError("none at all")
    return sum(values)
"""


@pytest.mark.parametrize(
    ("aggregation", "reason"),
    [
        ("mean", "the task's scorer failed: it gave None for 'some', on which lm-eval's mean would end in an error"),
        (
            Call("of_all"),
            "the task gave None for 'some', which its aggregation cannot take: none at all (TypeError, own.py line 10)",
        ),
        (Call("of_given"), None),
    ],
    ids=["lm-eval's", "its own that fails", "its own that does not"],
)
def test_a_missing_value_is_left_to_the_aggregation_that_can_do_without(
    make_task: MakeTask, spool: Spool, aggregation: Any, reason: str | None
) -> None:
    metrics = [{"metric": "some", "aggregation": aggregation}, {"metric": "all", "aggregation": "mean"}]
    task = make_task(LACKING, process_results=Call("score"), filter_list=None, metric_list=metrics)
    scores = score(task, spool, [str(n) for n in range(10)])
    scores.fail_what_cannot_be_aggregated()
    failed = [] if reason is None else [(4, FailureCause.UNSCORABLE, reason)]
    assert [(found.doc_id, found.cause, found.message) for found in scores.failed_samples()] == failed
    assert scores.done == 10
    assert len(lines_of(scores)) == scores.outcome_counts("none")[Outcome.ANSWERED] == scores.scored == 10 - len(failed)
    assert [len(values) for values in scores.raw_metrics().values()] == [scores.scored] * 2


def test_a_scorer_that_uses_the_alarm_itself_leaves_the_others_bounded(make_task: MakeTask, spool: Spool) -> None:
    taking = make_task(HOSTILE, process_results=Call("takes_the_alarm"), filter_list=None)
    scores = TaskScores("small", taking, spool, Deadline(0.2))
    made = built(taking)
    endless = make_task(filter_list=[{"name": "slow", "filter": [{"function": "regex", "regex_pattern": r"(a+)+$"}]}])
    others = TaskScores("small", endless, spool, scores._deadline)
    with scores._deadline.watching():
        scores.receive([CompleteSample(made[0], [Answer(text="0")])])
        others.receive([CompleteSample(built(endless)[0], [Answer(text="a" * 64 + "b")])])
    assert [failed.cause for failed in others.failed_samples()] == [FailureCause.UNSCORABLE]


def test_a_process_that_a_scorer_forks_off_does_not_go_on_with_the_run(make_task: MakeTask, spool: Spool) -> None:
    task = make_task(HOSTILE, process_results=Call("forks"), filter_list=None)
    here = os.getpid()
    scores = score(task, spool, [str(n) for n in range(10)])
    if os.getpid() != here:  # it does, after all: not to run the other tests twice
        os._exit(1)
    assert scores.scored == 10
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 0


LOSING = """
from lm_eval.api.filter import Filter

def lose(resps, docs):
    return [] if "4" in resps[0][0] else [resp[0] for resp in resps]
"""


def test_an_answer_that_a_filter_loses_is_not_lost_silently(make_task: MakeTask, spool: Spool) -> None:
    steps = [{"function": "custom", "filter_fn": Call("lose")}]
    task = make_task(LOSING, filter_list=[{"name": "losing", "filter": steps}])
    scores = score(task, spool, [str(n) for n in range(10)])
    [failed] = scores.failed_samples()
    assert (failed.doc_id, failed.cause) == (4, FailureCause.UNSCORABLE)
    assert "fewer answers" in failed.message


def test_an_answer_that_a_filter_makes_none_of_fails_with_the_filters_name(make_task: MakeTask, spool: Spool) -> None:
    steps = [{"function": "map", "mapping_dict": {"a": "b"}, "default_value": None}, {"function": "take_first"}]
    [failed, *_] = score(make_task(filter_list=[{"name": "mapped", "filter": steps}]), spool, ["c"]).failed_samples()
    assert "filter 'mapped' gave None, which cannot be scored" in failed.message


CHANGING = """
def score(doc, results):
    doc["seen"].append(1)
    return {"exact_match": float(len(doc["seen"]))}
"""


def test_a_scorer_that_changes_its_document_does_not_disturb_the_next_filter(make_task: MakeTask, spool: Spool) -> None:
    filters = [{"name": name, "filter": [{"function": "take_first"}]} for name in ("one", "two")]
    task = make_task(CHANGING, process_results=Call("score"), filter_list=filters, extra={"seen": [0]})
    scores = score(task, spool, ["x"])
    assert {tuple(values) for values in scores.raw_metrics().values()} == {(2.0,) * 10}


# -- order ------------------------------------------------------------------------------------------------------------

DRAWING = """
import random
import time
import numpy
from lm_eval.api.registry import metric_registry

def draw():
    return random.random() + numpy.random.random()

def score(doc, results):
    return {"exact_match": draw()}

def of_pair(predictions, references):
    return draw()

if "drawing" not in metric_registry:
    metric_registry.register("drawing", target=of_pair)

def filtered(resps, docs):
    return [[str(draw())] for _ in resps]

def mean(values):
    return sum(values) / len(values)
"""
TAKE_FIRST = {"function": "take_first"}


@pytest.mark.parametrize(
    "changes",
    [
        {"process_results": Call("score"), "filter_list": None},
        {"metric_list": [{"metric": "drawing", "aggregation": Call("mean"), "higher_is_better": True}]},
        {
            "filter_list": [
                {"name": "f", "filter": [{"function": "custom", "filter_fn": Call("filtered")}, TAKE_FIRST]},
            ],
            "doc_to_target": "0.5",
            "metric_list": [{"metric": "bleu"}],
        },
    ],
    ids=["process_results", "registered metric", "custom filter"],
)
def test_a_scorer_that_draws_random_numbers_is_independent_of_order(
    make_task: MakeTask, tmp_path: Path, changes: dict[str, Any]
) -> None:
    found: list[Any] = []
    for order in (range(10), [3, 1, 4, 0, 5, 9, 2, 6, 8, 7]):
        with Spool(tmp_path) as spool:
            task = make_task(DRAWING, **changes)
            random.seed(len(found))
            before = random.getstate()
            scores = score(task, spool, ["x"], order=order)
            assert random.getstate() == before, "the stream that prompts are drawn from is left alone"
            found.append((scores.raw_metrics(), lines_of(scores), scores.task_hash()))
    assert found[0] == found[1]
    values = next(iter(found[0][0].values()))
    assert len(set(map(str, values))) == 10


def test_order_changes_nothing(make_task: MakeTask, tmp_path: Path) -> None:
    found: list[Any] = []
    for order in (range(10), range(9, -1, -1)):
        with Spool(tmp_path) as spool:
            scores = score(make_task(), spool, ANSWERS, order=order)
            found.append(
                (scores.raw_metrics(), list(scores.sample_lines()), scores.task_hash(), scores.scored_documents)
            )
    assert found[0] == found[1]
    assert [line["filter"] for line in map(json.loads, found[0][1])] == ["number"] * 10 + ["whole"] * 10
