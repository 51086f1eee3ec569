"""Documents that are asked several times because the user says so: what all answers to them come to."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.errors import SpecificationError, TaskConfigError, UnknownMetricError
from assay.evaluation import Evaluation, evaluate
from assay.progress import Progress
from assay.rescoring.rescore import score
from assay.results.check_results import Verdict
from assay.runs.files import read_run
from assay.runs.saving import save_baseline
from assay.stats.intervals import clustered_mean_interval, wilson
from assay.tasks.library import load_tasks
from assay.tasks.metrics import expected_task_keys
from assay.tasks.repeat_warnings import repeat_warnings
from assay.types import Check, EarlyStopping, ModelSpec, Specification, TaskOptions
from tests.beside_lm_eval import sample_lines
from tests.servers.echoing import Body
from tests.servers.scripted import Fault, ScriptedServer

TASKS = Path(__file__).parent.parent / "repeat_tasks"
RUN_PAGE = Path(__file__).parents[2] / "docs" / "run.md"


class Varying:
    """Answers a question otherwise each time: of number n, `patterns[n % len(patterns)]` says how.

    "r" is the right number, "R" says it in a sentence, and a digit is a wrong number, as far from the right one.
    """

    def __init__(self, *patterns: str) -> None:
        self._patterns = patterns
        self._asked: Counter[int] = Counter()

    def __call__(self, body: Body) -> str:
        found = re.search(r"What is (\d+)\?", body["messages"][-1]["content"])
        assert found
        number = int(found[1])
        pattern = self._patterns[number % len(self._patterns)]
        said = pattern[self._asked[number] % len(pattern)]
        self._asked[number] += 1
        return {"r": f"{number}", "R": f"It is {number}"}.get(said) or f"{number + int(said)}"


MIXED = ("rrrrr", "12345", "1r1r2", "r1r12", "12rrR", "1Rr12", "21rR1", "r1234", "12r11", "Rr112")
"""Five answers to each: all right, none, ties that the first decides, numbers that are equal where texts are not."""


class Remarks(Progress):
    """Keeps what is said before the first request."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def noted(self, remark: str) -> None:
        self.said.append(remark)


def run(
    server: ScriptedServer,
    output_dir: Path,
    *tasks: str,
    repeats: int | None = 5,
    progress: Progress | None = None,
    **more: Any,
) -> Evaluation:
    """`more` are fields of the specification, or in ``options`` and ``model`` of those."""
    specification = Specification(
        tasks=tasks or ("asked",),
        model=ModelSpec(base_url=server.url, model="m", **{"concurrency": 1, **more.pop("model", {})}),
        options=TaskOptions(include_path=str(TASKS), repeats=repeats, **more.pop("options", {})),
        output_dir=str(output_dir),
        **more,
    )
    return evaluate(specification, progress)


def values_of(run: Evaluation, task: str = "asked") -> dict[str, float | None]:
    return {score.metric: score.value for score in run.scores if score.task == task}


def by_lm_eval(url: str) -> dict[str, Any]:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.openai_completions import LocalChatCompletion
    from lm_eval.tasks import TaskManager

    results: dict[str, Any] = simple_evaluate(
        model=LocalChatCompletion(model="m", base_url=f"{url}/v1/chat/completions", num_concurrent=1),
        tasks=["by_lm_eval"],
        task_manager=TaskManager(include_defaults=False, include_path=str(TASKS)),
        apply_chat_template=True,
        bootstrap_iters=0,
    )
    return results


def test_best_and_most_frequent_are_those_of_lm_evals_filters(tmp_path: Path) -> None:
    pytest.importorskip("tenacity")
    with ScriptedServer(answer=Varying(*MIXED), models=["m"]) as server:
        theirs = by_lm_eval(server.url)
        asked = len(server.answered)
        ours = run(server, tmp_path, model={"distinct_repeat_seeds": False})
        expected, got = server.answered[:asked], server.answered[asked:]
    assert Counter(map(json.dumps, got)) == Counter(map(json.dumps, expected))
    samples = {(line["filter"], line["doc_id"]): line["exact_match"] for line in theirs["samples"]["by_lm_eval"]}
    of_filter = {line["filter"]: line for line in sample_lines(ours, "asked")}
    assert set(of_filter) == {"number", "whole"}
    for line in sample_lines(ours, "asked"):
        name, doc_id = line["filter"], line["doc_id"]
        assert line["exact_match"] == samples[name, doc_id]
        assert line["repeats"]["exact_match_pass@5"] == samples[f"best of {name}", doc_id]
        assert line["repeats"]["exact_match_maj@5"] == samples[f"votes of {name}", doc_id]
    values, results = values_of(ours), theirs["results"]["by_lm_eval"]
    for name in ("number", "whole"):
        assert values[f"exact_match,{name}"] == results[f"exact_match,{name}"]
        assert values[f"exact_match_pass@5,{name}"] == pytest.approx(results[f"exact_match,best of {name}"])
        assert values[f"exact_match_maj@5,{name}"] == pytest.approx(results[f"exact_match,votes of {name}"])
    assert len({values[f"exact_match_maj@5,{name}"] for name in ("number", "whole")}) == 2
    # lm-eval's own part of the file knows of none of these.
    assert set(ours.results["results"]["asked"]) == {key for key in results if " of " not in key}
    assert ours.results["configs"]["asked"]["repeats"] == theirs["configs"]["by_lm_eval"]["repeats"]


def test_all_answers_count_in_the_mean_and_in_the_best_of_fewer(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying("rr12", "r123", "1234"), models=["m"]) as server:
        done = run(server, tmp_path, repeats=4)
    values = values_of(done)
    assert [key for key in values if key.endswith(",number")] == [
        "exact_match,number",
        *(f"exact_match_{name},number" for name in ("avg@4", "pass@1", "pass@2", "pass@4", "maj@4")),
    ]
    assert values["exact_match_avg@4,number"] == values["exact_match_pass@1,number"] == pytest.approx(3 / 12)
    assert values["exact_match_pass@2,number"] == pytest.approx((5 / 6 + 3 / 6 + 0) / 3)
    assert values["exact_match_pass@4,number"] == pytest.approx(2 / 3)
    assert values["exact_match_maj@4,number"] == pytest.approx(2 / 3)
    assert json.loads(done.results_file.read_text())["assay"]["scores"][2]["metric"] == "exact_match_avg@4,number"


def test_intervals_take_documents_for_clusters(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying(*MIXED), models=["m"]) as server:
        done = run(server, tmp_path)
    right = [[float(said in "rR") for said in MIXED[n % len(MIXED)]] for n in range(12)]
    expected = clustered_mean_interval(
        [score for scores in right for score in scores], [n for n in range(12) for _ in range(5)], support=(0, 1)
    )
    scores = {score.metric: score for score in done.scores}
    interval = scores["exact_match_avg@5,number"].interval
    assert interval is not None
    assert interval.low == pytest.approx(expected.low)
    assert interval.high == pytest.approx(expected.high)
    assert (interval.method, interval.confidence) == (expected.method, expected.confidence)
    assert scores["exact_match_avg@5,number"].n == 12
    best = sum(any(scores) for scores in right)
    assert scores["exact_match_pass@5,number"].interval == wilson(best, 12)


def test_graded_answers_have_a_mean_and_no_best(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying("r111", "11rr"), models=["m"]) as server:
        done = run(server, tmp_path, "graded", repeats=4, checks=(Check(metric="closeness_pass@4", min=0.5),))
    assert values_of(done, "graded") == {
        "closeness,none": pytest.approx(0.625),
        "closeness_avg@4,none": pytest.approx((1.75 + 2.5) / 8),
        "closeness_maj@4,none": pytest.approx(0.25),
    }
    assert done.verdict is Verdict.INVALID


def test_a_group_is_told_of_all_answers_as_of_the_first(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying("rr12", "r123", "1234"), models=["m"]) as server:
        done = run(
            server, tmp_path, "pair", repeats=4, checks=(Check(task="pair", metric="exact_match_avg@4", min=0.25),)
        )
    of_group, *of_tasks = (values_of(done, name)["exact_match_avg@4,number"] for name in ("pair", "asked", "asked_too"))
    assert None not in of_tasks
    assert of_group == pytest.approx((12 * (of_tasks[0] or 0) + 4 * (of_tasks[1] or 0)) / 16)
    assert "exact_match_avg@4,whole" not in values_of(done, "pair")
    assert done.checks[0].value == of_group
    assert done.verdict is (Verdict.PASS if (of_group or 0) >= 0.25 else Verdict.FAIL)


def test_a_threshold_that_is_met_exactly_is_met(tmp_path: Path) -> None:
    checks = tuple(Check(metric=f"exact_match_avg@3,{name}", min=7 / 9) for name in ("number", "whole"))
    with ScriptedServer(answer=Varying("r11", "rrr", "rrr"), models=["m"]) as server:
        done = run(server, tmp_path, repeats=3, checks=checks)
    assert [check.verdict for check in done.checks] == [Verdict.PASS] * 2


def test_early_stopping_counts_a_document_when_all_its_answers_are_there(tmp_path: Path) -> None:
    checks = (Check(metric="exact_match_avg@4,number", min=0.2),)
    with ScriptedServer(answer=Varying("1234"), models=["m"]) as server:
        done = run(
            server,
            tmp_path,
            repeats=4,
            checks=checks,
            early_stopping=EarlyStopping(order_seed=1),
            alpha=0.4,
            model={"concurrency": 3},
        )
        asked = Counter(body["messages"][-1]["content"] for body in server.answered)
    assert done.verdict is Verdict.FAIL
    assert done.stopped_early is not None
    assert done.checks[0].n == done.stopped_early.documents < 12
    assert list(asked.values()).count(4) >= done.checks[0].n
    assert {len(line["resps"][0]) for line in sample_lines(done, "asked")} == {4}


def test_a_document_without_one_of_its_answers_has_none(tmp_path: Path) -> None:
    lost = Fault("http_400", indices=frozenset({7}))  # the second answer to the document of number 3
    with ScriptedServer(answer=Varying("rr"), models=["m"], faults=[lost]) as server:
        done = run(server, tmp_path, repeats=2, checks=(Check(metric="exact_match_avg@2,number", min=0.95),))
    assert [failure.doc_id for failure in done.failures] == [3]
    best = next(score for score in done.scores if score.metric == "exact_match_avg@2,number")
    assert (best.n, best.failed, best.value) == (11, 1, 1.0)
    assert best.bounds is not None
    assert best.bounds.low == pytest.approx(11 / 12)
    assert best.bounds.high == 1.0
    assert done.verdict is Verdict.INVALID


def test_a_baseline_holds_them(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying("rrrr", "rr11"), models=["m"]) as server:
        before = run(server, tmp_path / "before", repeats=4)
    baseline = tmp_path / "baseline.json"
    save_baseline(before.results_file, baseline)
    key = "exact_match_avg@4,number"
    assert read_run(baseline).tasks["asked"].scores[key] == (1.0, 0.5) * 6
    with ScriptedServer(answer=Varying("rr11", "rr11"), models=["m"]) as server:
        checks = (Check(metric=key, baseline=str(baseline), margin=0.1),)
        after = run(server, tmp_path / "after", repeats=4, checks=checks)
    assert after.verdict is Verdict.FAIL
    assert after.checks[0].difference == pytest.approx(-0.25)
    assert after.checks[0].lost == 6


def test_a_run_scored_again_gives_the_same(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying(*MIXED), models=["m"]) as server:
        done = run(server, tmp_path)
    again = score(done.results_file)
    assert again.scores == done.scores
    assert again.differences == ()


@pytest.mark.parametrize(
    ("repeats", "model", "seeds"),
    [
        (3, {}, {1234, 1235, 1236}),
        (3, {"distinct_repeat_seeds": False}, {1234}),
        (1, {}, {1234}),
        (None, {}, {1234}),
    ],
    ids=str,
)
def test_seeds(tmp_path: Path, repeats: int | None, model: dict[str, Any], seeds: set[int]) -> None:
    with ScriptedServer(answer=Varying("r"), models=["m"]) as server:
        done = run(server, tmp_path, repeats=repeats, model=model)
        assert {body["seed"] for body in server.answered} == seeds
        assert len(server.answered) == 12 * (repeats or 1)
    assert any("@" in metric for metric in values_of(done)) is (repeats == 3)


def test_answers_that_cannot_be_counted_have_no_most_frequent_one(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying("R1"), models=["m"]) as server:
        done = run(server, tmp_path, "listing", repeats=2)
    assert values_of(done, "listing") == {
        "exact_match,words": 1.0,
        "exact_match_avg@2,words": 0.5,
        "exact_match_pass@1,words": 0.5,
        "exact_match_pass@2,words": 1.0,
    }


@pytest.mark.parametrize(
    ("task", "more", "words"),
    [
        ("asked", {}, None),
        ("asked", {"repeats": None}, None),
        ("greedy", {}, "the 5 answers to each document of greedy can hardly differ: the temperature is 0"),
        ("greedy", {"repeats": 1}, None),
        ("greedy", {"options": {"gen_kwargs": {"temperature": 0.8}}}, None),
        ("greedy", {"model": {"extra_body": {"temperature": 1}}}, None),
        ("greedy", {"model": {"drop_fields": ("temperature",)}}, None),
        ("asked", {"model": {"distinct_repeat_seeds": False}}, "of asked are asked for with one seed"),
        ("graded", {}, "maj@5 of graded counts whole texts as votes"),
    ],
    ids=str,
)
def test_repeats_that_can_hardly_say_anything_are_named(
    tmp_path: Path, task: str, more: dict[str, Any], words: str | None
) -> None:
    remarks = Remarks()
    with ScriptedServer(answer=Varying("r"), models=["m"]) as server:
        run(server, tmp_path, task, progress=remarks, **more)
    of_repeats = [said for said in remarks.said if "answer" in said]
    assert len(of_repeats) == (words is not None)
    assert (words or "") in "".join(of_repeats)


def test_nothing_is_repeated_where_nothing_is_generated() -> None:
    options = TaskOptions(include_path=str(TASKS), repeats=5)
    loaded = load_tasks(["choosing"], options, {})
    assert loaded.tasks["choosing"].get_config("repeats") == 1
    assert expected_task_keys(loaded.tasks["choosing"]) == ["acc,none"]
    (said,) = repeat_warnings(loaded.tasks, options, ModelSpec(base_url="http://127.0.0.1:9", model="m"))
    assert said == "repeats = 5 does not count for choosing, where nothing is generated"


def test_filters_of_more_answers_than_are_asked_for_are_refused(tmp_path: Path) -> None:
    with ScriptedServer(answer=Varying("r"), models=["m"]) as server:
        with pytest.raises(TaskConfigError, match="filter 'maj@64' takes the first 64 answers to each document, and r"):
            run(server, tmp_path, "first_64", repeats=8)
        assert not server.answered
        assert values_of(run(server, tmp_path, "first_64", repeats=64), "first_64") == {"exact_match,maj@64": 1.0}


@pytest.mark.parametrize("repeats", [0, -3])
def test_each_document_is_asked_once_at_least(tmp_path: Path, repeats: int) -> None:
    with (
        ScriptedServer(answer=Varying("r"), models=["m"]) as server,
        pytest.raises(SpecificationError, match=f"repeats is {repeats}; each document must be asked once at least"),
    ):
        run(server, tmp_path, repeats=repeats)


def test_a_check_on_all_answers_needs_repeats(tmp_path: Path) -> None:
    checks = (Check(metric="exact_match_avg@5,number", min=0.5),)
    with ScriptedServer(answer=Varying("r"), models=["m"]) as server:
        with pytest.raises(UnknownMetricError, match="no metric 'exact_match_avg@5,number'"):
            run(server, tmp_path, repeats=4, checks=checks)
        with pytest.raises(UnknownMetricError, match="no metric 'exact_match_avg@5,number'"):
            run(server, tmp_path, repeats=None, checks=checks)
        assert not server.answered


def test_the_task_that_the_documentation_shows_votes_on_numbers(tmp_path: Path) -> None:
    found = re.search(r"```yaml\n(  task: aime24_votes.*?)```", RUN_PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    rows = [{"Problem": f"What is {n}?", "Answer": n} for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = yaml.safe_load(found[1])
    task |= {"dataset_path": "json", "dataset_kwargs": {"data_files": {"train": str(tmp_path / "rows.jsonl")}}}
    (tmp_path / "task.yaml").write_text(yaml.safe_dump(task))
    script, thoughts = Varying("1rr"), itertools.count()

    def boxed(body: Body) -> str:
        said = script(body)
        return f"Thought {next(thoughts)}: perhaps \\boxed{{7}}, but no: \\boxed{{00{said}}}."

    remarks = Remarks()
    with ScriptedServer(answer=boxed, models=["m"]) as server:
        done = run(server, tmp_path, str(tmp_path / "task.yaml"), repeats=3, progress=remarks)
        assert "\nGive the final number in \\boxed{}.\n" in server.answered[0]["messages"][-1]["content"]
    values = values_of(done, "aime24_votes")
    assert (values["exact_match,boxed"], values["exact_match_maj@3,boxed"]) == (0.0, 1.0)
    assert not [said for said in remarks.said if "answer" in said]
