"""A baseline whose documents are gone, moved or others: one answer, whether the run stops early or not."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from assay.cli.gate import gate
from assay.errors import BaselineMismatchError, SpecificationError
from assay.evaluation import evaluate
from assay.results.check_results import CheckResult, Verdict
from assay.runs.saving import save_baseline
from assay.types import Check, EarlyStopping, ModelSpec, Specification, TaskOptions
from tests.gate.conftest import KEY, TASKS
from tests.servers.scripted import Fault, ScriptedServer

N = 60
ROWS = [{"question": f"what is {number} + {number * 7} ?", "answer": str(number * 8)} for number in range(N)]


class Bench:
    """A task whose data file the test changes, and a baseline of its first state."""

    def __init__(self, folder: Path, server: ScriptedServer) -> None:
        self.folder, self.server, self.runs = folder, server, 0
        self.tasks = folder / "tasks"
        self.tasks.mkdir()
        self.define(["sums"])
        self.write(ROWS)

    def define(self, names: list[str], group: list[str] | None = None) -> None:
        template = (TASKS / "_template_yaml").read_text().replace("custom_dataset: !function rows.load\n", "")
        for name in names:
            data = (
                f"task: {name}\ndataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {self.folder}/rows.json\n"
            )
            (self.tasks / f"{name}.yaml").write_text(data + template)
        if group:
            lines = f"group: all_sums\ntask: {json.dumps(group)}\naggregate_metric_list:\n  - metric: exact_match\n"
            (self.tasks / "_group.yaml").write_text(lines + "    filter_list: get-answer\n    weight_by_size: false\n")

    def write(self, rows: list[dict[str, str]]) -> None:
        (self.folder / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def specification(self, *checks: Check, early: bool = False, **options: Any) -> Specification:
        self.runs += 1
        return Specification(
            tasks=(options.pop("task", "sums"),),
            model=ModelSpec(base_url=self.server.url, model="scripted", concurrency=4),
            options=TaskOptions(include_path=str(self.tasks), **options),
            checks=checks,
            early_stopping=EarlyStopping(order_seed=3) if early else None,
            output_dir=str(self.folder / f"run{self.runs}"),
        )

    def baseline(self, task: str = "sums", **options: Any) -> Check:
        run = evaluate(self.specification(task=task, **options))
        file = self.folder / "baseline.json"
        save_baseline(run.results_file, file)
        return Check(metric=KEY, task=task, baseline=str(file), margin=0.2)

    def judged(self, check: Check, *, early: bool, **options: Any) -> CheckResult:
        (result,) = evaluate(self.specification(check, early=early, **options)).checks
        return result


@pytest.fixture
def bench(server: ScriptedServer, tmp_path: Path) -> Bench:
    return Bench(tmp_path, server)


@pytest.mark.parametrize("early", [True, False])
def test_documents_that_are_gone_are_no_pass(bench: Bench, early: bool) -> None:
    check = bench.baseline()
    bench.write(ROWS[:5])
    asked = bench.server.count
    with pytest.raises(BaselineMismatchError, match=r"sums: data: 55 of the baseline's 60 documents are gone"):
        bench.judged(check, early=early)
    with pytest.raises(BaselineMismatchError, match=r"5 of the baseline's 60 documents are gone"):
        bench.judged(check, early=early, limit=10)
    with pytest.raises(BaselineMismatchError, match=r"27 of the baseline's 60 documents are gone"):
        bench.judged(check, early=early, limit=0.5)
    assert bench.server.count == asked


@pytest.mark.parametrize("early", [True, False])
def test_documents_that_were_added_are_no_pass_whichever_are_asked_first(bench: Bench, early: bool) -> None:
    check = bench.baseline()
    bench.write([*ROWS, {"question": "what is 500 + 1 ?", "answer": "501"}])
    asked = bench.server.count
    with pytest.raises(BaselineMismatchError, match=r"sums: data: 1 of 61 documents are not in the baseline"):
        bench.judged(check, early=early)
    assert bench.server.count == asked
    allowed = bench.judged(msgspec.structs.replace(check, allow_mismatch=True), early=early)
    assert allowed.verdict is Verdict.PASS


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("options", [{"limit": 5}, {"limit": 0.25}, {"samples": {"sums": [3, 40]}}])
def test_a_run_that_is_limited_needs_only_what_it_chose(bench: Bench, early: bool, options: dict[str, Any]) -> None:
    check = bench.baseline()
    assert bench.judged(check, early=early, **options).verdict is Verdict.PASS


def test_a_gate_calls_it_invalid_and_explain_refuses_it(bench: Bench) -> None:
    check = bench.baseline()
    bench.write(ROWS[:5])
    policy = bench.folder / "gate.toml"
    policy.write_text(
        f'[options]\ninclude_path = "{bench.tasks}"\n[models.main]\nbase_url = "{bench.server.url}"\n'
        f'model = "scripted"\n[[checks]]\ntask = "sums"\nmetric = "{KEY}"\nmargin = 0.2\nbaseline = "{check.baseline}"'
    )
    done = CliRunner(env={"GITHUB_ACTIONS": "false"}).invoke(gate, [str(policy)], standalone_mode=False)
    assert done.return_value == 4, done.output
    assert "55 of the baseline's 60 documents are gone" in done.output
    explained = CliRunner().invoke(gate, [str(policy), "--explain"], standalone_mode=False)
    assert isinstance(explained.exception, BaselineMismatchError)


@pytest.mark.parametrize("early", [True, False])
def test_documents_that_moved_are_the_same_documents(bench: Bench, early: bool) -> None:
    """A score is about what was asked; in which order a file lists it changes no question and no answer."""
    check = bench.baseline()
    bench.write(random.Random(1).sample(ROWS, N))
    result = bench.judged(check, early=early)
    assert (result.verdict, result.difference, result.lost) == (Verdict.PASS, 0.0, 0)


@pytest.mark.parametrize("early", [True, False])
def test_a_document_that_comes_twice_does_not_stand_for_one_that_is_gone(bench: Bench, early: bool) -> None:
    check = bench.baseline()
    bench.write([*ROWS[:5], *ROWS[:5] * 11])
    result = bench.judged(check, early=early)
    assert result.verdict is Verdict.INVALID
    assert "in the baseline" in result.reason or "is not in it" in result.reason


@pytest.mark.parametrize("early", [True, False])
def test_a_subtask_that_left_its_group_is_no_pass(bench: Bench, early: bool) -> None:
    bench.define(["sums", "more_sums"], group=["sums", "more_sums"])
    check = bench.baseline("all_sums")
    bench.define(["sums"], group=["sums"])
    with pytest.raises(BaselineMismatchError, match="all_sums: its subtasks more_sums are gone"):
        bench.judged(check, early=early, task="all_sums")


def test_what_was_allowed_is_said_with_the_verdict(bench: Bench) -> None:
    check = bench.baseline()
    bench.write([*ROWS[:5], {"question": "what is 1 + 1 ?", "answer": "2"}])
    allowed = Check(metric=check.metric, task="sums", baseline=check.baseline, margin=check.margin, allow_mismatch=True)
    result = bench.judged(allowed, early=False)
    assert result.verdict is Verdict.PASS
    assert "allowed: sums: data: 1 of 6 documents are not in the baseline" in result.reason
    assert "55 of the baseline's documents were not asked" in result.reason


def test_a_group_says_which_of_its_subtasks_its_score_knows_nothing_of(bench: Bench) -> None:
    bench.define(["sums", "more_sums"], group=["sums", "more_sums"])
    other = bench.tasks / "more_sums.yaml"
    other.write_text(other.read_text().replace("get-answer", "another-filter"))
    check = Check(metric=KEY, task="all_sums", min=0.5)
    result = bench.judged(check, early=False, task="all_sums")
    assert (result.verdict, result.n) == (Verdict.PASS, 60)
    assert result.reason.endswith("without more_sums of its 2 subtasks, which do not report exact_match,get-answer")
    with pytest.raises(SpecificationError, match="no check looks at more_sums"):
        bench.judged(check, early=True, task="all_sums")


@pytest.mark.parametrize("early", [True, False])
def test_a_run_that_goes_on_is_not_judged_by_itself(bench: Bench, early: bool) -> None:
    """A folder of results stands for its newest run, which may be the one that goes on."""
    bench.server.faults = (Fault("http_400", fraction=0.3),)
    first = bench.specification()
    results = evaluate(first).results_file
    bench.server.faults = ()
    check = Check(metric=KEY, task="sums", baseline=str(results.parent), margin=0.2)
    stopping = EarlyStopping(order_seed=3) if early else None
    with pytest.raises(BaselineMismatchError, match="is this run itself"):
        evaluate(msgspec.structs.replace(first, checks=(check,), early_stopping=stopping))
    anew = msgspec.structs.replace(first, checks=(check,), early_stopping=stopping, fresh=True)
    assert evaluate(anew).checks[0].n
