"""Some documents tell of the rest only where scores are bounded, and known to be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from assay.checks.scope import scope_of
from assay.checks.verdicts import parse_range
from assay.cli.gate import gate
from assay.cli.run import run as run_command
from assay.errors import SpecificationError
from assay.evaluation import Evaluation, evaluate
from assay.progress import Progress
from assay.results.check_results import Verdict
from assay.runs.files import read_run
from assay.types import Budget, Check, EarlyStopping, ModelSpec, Specification, TaskOptions
from tests.servers.scripted import Fault, ScriptedServer

TASKS = Path(__file__).parents[1] / "graded_tasks"
N = 300
RARE = {(31 * place) % N for place in range(3)}
"""Documents with 40 errors each, where all others have none: 0.4 on average."""

Scores = Callable[[int], float]


def rare(number: int) -> float:
    return 40.0 if number in RARE else 0.0


def half_credit(number: int) -> float:
    return (0.5, 1.0, 1.0)[number % 3]


def answering(server: ScriptedServer, scores: Scores) -> None:
    server.answer = lambda body: str(scores(int(body["messages"][-1]["content"].split()[-1])))


def specification(server: ScriptedServer, folder: Path, check: Check, seed: int = 3, **options: Any) -> Specification:
    return Specification(
        tasks=(check.task or "",),
        model=ModelSpec(base_url=server.url, model="scripted", concurrency=8, max_attempts=1),
        options=TaskOptions(include_path=str(TASKS), **options),
        checks=(check,),
        early_stopping=EarlyStopping(order_seed=seed),
        output_dir=str(folder),
        probe=False,
        triage=False,
    )


def errors(**demand: Any) -> Check:
    return Check(metric="errors,none", task="mistakes", **demand)


def credit(**demand: Any) -> Check:
    return Check(metric="acc,none", task="partial", **demand)


def judged(run: Evaluation) -> tuple[Verdict, int]:
    (result,) = run.checks
    return result.verdict, result.n


@pytest.mark.parametrize("seed", [1, 2])
def test_rare_large_scores_turn_no_verdict(server: ScriptedServer, tmp_path: Path, seed: int) -> None:
    answering(server, rare)
    above = evaluate(specification(server, tmp_path / "max", errors(max=0.2), seed))
    assert judged(above) == (Verdict.FAIL, N)
    below = evaluate(specification(server, tmp_path / "min", errors(min=0.3), seed))
    assert judged(below) == (Verdict.PASS, N)


def test_a_baseline_check_is_no_better_informed(server: ScriptedServer, tmp_path: Path) -> None:
    answering(server, lambda number: 0.0)
    full = msgspec.structs.replace(specification(server, tmp_path / "b", errors()), checks=(), early_stopping=None)
    baseline = evaluate(full).results_file
    answering(server, rare)
    check = errors(baseline=str(baseline), margin=0.2)
    assert judged(evaluate(specification(server, tmp_path / "c", check))) == (Verdict.FAIL, N)
    stated = msgspec.structs.replace(check, range=(0.0, 40.0), margin=20.0)
    passed = evaluate(specification(server, tmp_path / "d", stated))
    assert passed.checks[0].verdict is Verdict.PASS
    assert passed.checks[0].n < N / 2


def test_a_stated_range_stops_early_and_is_held_to(server: ScriptedServer, tmp_path: Path) -> None:
    answering(server, lambda number: 30.0 + number % 11)
    within = evaluate(specification(server, tmp_path / "within", errors(max=5, range=(0.0, 40.0))))
    assert within.checks[0].verdict is Verdict.FAIL
    assert within.checks[0].n < N / 2
    answering(server, lambda number: 41.0 if number == 7 else 1.0)
    early = evaluate(specification(server, tmp_path / "early", errors(max=1.2, range=(0.0, 40.0))))
    full = msgspec.structs.replace(
        specification(server, tmp_path / "full", errors(max=1.2, range=(0.0, 40.0))), early_stopping=None
    )
    for result in (*early.checks, *evaluate(full).checks):
        assert result.verdict is Verdict.INVALID
        assert "document 7 of mistakes scored 41, outside the range [0, 40]" in result.reason


def test_graded_accuracies_stop_early(server: ScriptedServer, tmp_path: Path) -> None:
    answering(server, half_credit)
    run = evaluate(specification(server, tmp_path, credit(min=0.5)))
    assert run.checks[0].verdict is Verdict.PASS
    assert run.checks[0].n < 100
    assert re.fullmatch(
        rf"after {run.checks[0].n} of {N} documents: at least 0\.5 \(98 % confidence: 0\.5\d+ to 0\.\d+\); "
        r"so far 0\.\d+, not a full-run score",
        run.checks[0].reason,
    )


def test_scores_in_single_precision_are_scores(server: ScriptedServer, tmp_path: Path) -> None:
    """They stop early, and what is averaged of them, in single precision too, can be compared."""
    answering(server, half_credit)
    check = Check(metric="acc,none", task="single", min=0.5)
    assert evaluate(specification(server, tmp_path / "early", check)).checks[0].n < 100
    full = msgspec.structs.replace(specification(server, tmp_path / "full", check), early_stopping=None)
    file = evaluate(full).results_file
    assert len(read_run(file).tasks["single"].scores["acc,none"]) == N
    against = Check(metric="acc,none", task="single", baseline=str(file), margin=0.2)
    (result,) = evaluate(specification(server, tmp_path / "against", against)).checks
    assert (result.verdict, result.n < N) == (Verdict.PASS, True)


def test_a_name_that_does_not_keep_its_word_leaves_it_to_all_documents(server: ScriptedServer, tmp_path: Path) -> None:
    answering(server, lambda number: 2.0 if number % 5 == 0 else 0.0)
    run = evaluate(specification(server, tmp_path / "all", credit(min=0.3)))
    assert judged(run) == (Verdict.PASS, N)
    assert run.checks[0].reason.startswith("0.4000 >= 0.3; could not stop early: document ")
    assert run.checks[0].reason.endswith(" of partial scored 2, outside the range [0, 1]")
    budget = msgspec.structs.replace(
        specification(server, tmp_path / "some", credit(min=0.3)),
        early_stopping=EarlyStopping(budget=Budget(documents=40), order_seed=3),
    )
    (result,) = evaluate(budget).checks
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "scored 2, outside the range [0, 1]" in result.reason


def test_failures_of_unknown_weight_decide_nothing(server: ScriptedServer, tmp_path: Path) -> None:
    """All scores seen are 0 or 1, and that says nothing of the others."""
    answering(server, lambda number: float(number % 2))
    server.faults = (Fault("http_400", fraction=0.05),)
    (unknown,) = evaluate(specification(server, tmp_path / "a", errors(max=0.9))).checks
    assert unknown.verdict is Verdict.INVALID
    assert "range = [0, 1]" in unknown.reason
    full = msgspec.structs.replace(
        specification(server, tmp_path / "b", errors(max=0.9, range=(0.0, 1.0))), early_stopping=None
    )
    assert evaluate(full).checks[0].verdict is Verdict.PASS
    early = evaluate(specification(server, tmp_path / "c", errors(max=0.7, range=(0.0, 1.0))))
    (result,) = early.checks
    assert (result.verdict, result.n < N) == (Verdict.PASS, True)
    assert result.failed
    assert f"{result.failed} sample" in result.reason
    assert "holds whatever" in result.reason


def test_a_verdict_on_a_part_says_so(server: ScriptedServer, tmp_path: Path) -> None:
    answering(server, half_credit)
    early = specification(server, tmp_path / "early", credit(min=0.5), limit=150)
    full = msgspec.structs.replace(early, early_stopping=None, output_dir=str(tmp_path / "full"))
    chosen = specification(server, tmp_path / "chosen", credit(min=0.5), samples={"partial": (1, 5, 8)})
    for run, part in ((early, "the first 150 of 300"), (full, "the first 150 of 300"), (chosen, "3 chosen of 300")):
        (result,) = evaluate(run).checks
        assert result.verdict is Verdict.PASS
        assert f"{part} documents only" in result.reason
    file = policy(tmp_path, "http://127.0.0.1:9", "max = 10\nrange = [0, 40]")
    file.write_text(file.read_text().replace("[options]\n", "[options]\nlimit = 15\n"))
    explained = shown(gate, str(file), "--explain").output
    assert "the first 15 of 300 documents only" in explained
    assert "[budget] documents = N" in explained


def policy(folder: Path, url: str, check: str) -> Path:
    file = folder / "gate.toml"
    file.write_text(
        f'[options]\ninclude_path = "{TASKS}"\n[models.main]\nbase_url = "{url}"\nmodel = "scripted"\n'
        f'[[checks]]\ntask = "mistakes"\nmetric = "errors,none"\n{check}\n'
    )
    return file


def shown(command: Any, *arguments: str) -> Result:
    return CliRunner(env={"GITHUB_ACTIONS": "false"}).invoke(command, arguments, standalone_mode=False)


def test_explain_says_that_all_documents_decide_and_how_to_change_that(tmp_path: Path) -> None:
    unknown = str(policy(tmp_path, "http://127.0.0.1:9", "max = 0.2"))
    assert (
        "cannot stop early, asks all documents: the range of errors is not known"
        in shown(gate, unknown, "--explain").output
    )
    (outlook,) = json.loads(shown(gate, unknown, "--explain", "--json").stdout)
    assert (outlook["healthy_documents"], outlook["broken_documents"], outlook["range"]) == (N, N, None)
    budgeted = policy(tmp_path, "http://127.0.0.1:9", "max = 10\nrange = [0, 40]")
    budgeted.write_text("[budget]\ntokens = 900\nminutes = 2\n" + budgeted.read_text())
    assert (
        "[budget] tokens = 900 and minutes = 2 may end the run earlier"
        in shown(gate, str(budgeted), "--explain").output
    )
    known = str(policy(tmp_path, "http://127.0.0.1:9", "max = 10\nrange = [0, 40]"))
    (outlook,) = json.loads(shown(gate, known, "--explain", "--json").stdout)
    assert outlook["remarks"] == []
    assert outlook["range"] == [0, 40]
    assert outlook["broken_documents"] < N / 2


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (Check(metric="errors,none", task="mistakes", min=0.3), "less is better, so that min = 0.3 fails good servers"),
        (Check(metric="acc,none", task="partial", max=0.9), "more is better, so that max = 0.9 fails good servers"),
        (Check(metric="acc,none", task="partial", min=0.0), "min = 0 is met whatever the scores are"),
        (Check(metric="errors,none", task="mistakes", max=3, range=(0, 3)), "max = 3 is met whatever the scores are"),
        (Check(metric="errors,none", task="mistakes", max=0.3), None),
        (Check(metric="acc,none", task="partial", min=0.9), None),
    ],
    ids=["min", "max", "least", "most", "errors", "credit"],
)
def test_a_demand_that_is_hardly_meant_is_asked_about(
    server: ScriptedServer, tmp_path: Path, check: Check, words: str | None
) -> None:
    answering(server, half_credit)
    noted: list[str] = []

    class Noting(Progress):
        def noted(self, remark: str) -> None:
            noted.append(remark)

    (result,) = evaluate(specification(server, tmp_path, check), Noting()).checks
    said = [remark for remark in noted if "fails good servers; did you mean" in remark or "cannot fail" in remark]
    assert len(said) == (words is not None)
    assert words is None or (words in said[0] and words in result.reason)


def test_a_range_on_the_command_line(server: ScriptedServer, tmp_path: Path) -> None:
    answering(server, lambda number: 30.0)
    options = ["mistakes", "--base-url", server.url, "--model", "scripted", "--include-path", str(TASKS)]
    options += ["--output-dir", str(tmp_path), "--max", "errors,none=5", "--stop-early", "--no-probe"]
    done = shown(run_command, *options, "--range", "errors,none=0,40")
    assert done.return_value == 1
    assert "stopped early" in done.output
    assert isinstance(shown(run_command, *options, "--range", "acc,none=0,40").exception, SpecificationError)


@pytest.mark.parametrize("text", ["", "errors=1", "errors,none=0", "errors,none=3,1", "=0,1", "e,n=0,nan", "e,n=a,b"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(SpecificationError, match="is no range"):
        parse_range(text)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (errors(max=50, range=(0.0, 40.0)), "max 50; it must lie between 0 and 40"),
        (errors(max=5, range=(40.0, 0.0)), r"range \[40, 0\]"),
        (errors(max=5, range=(-1e308, 1e308)), r"range \[-1e\+308, 1e\+308\]"),
        (errors(baseline="b.json", margin=41.0, range=(0.0, 40.0)), "margin 41; it must lie between 0 and 40"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(
    server: ScriptedServer, tmp_path: Path, check: Check, message: str
) -> None:
    with pytest.raises(SpecificationError, match=message):
        evaluate(specification(server, tmp_path, check))
    assert server.count == 0


class FakeTask:
    """As much of lm-eval's Task as tells a metric's range."""

    task_name = "t"

    def __init__(
        self, metric: str, output_type: str, *, higher: bool = True, own: bool = False, filters: Any = None
    ) -> None:
        self._directions = {metric: higher}
        self._config: dict[str, Any] = {"output_type": output_type, "process_results": print if own else None}
        self._config["filter_list"] = filters and [{"name": "f", "filter": [{"function": name} for name in filters]}]

    def aggregation(self) -> dict[str, Any]:
        from lm_eval.api.metrics import mean

        return dict.fromkeys(self._directions, mean)

    def higher_is_better(self) -> dict[str, bool]:
        return self._directions

    def get_config(self, key: str) -> Any:
        return self._config.get(key)


class ConfigurableTask(FakeTask):
    """Named as lm-eval's own class."""


class Loaded:
    """Tasks without groups."""

    def __init__(self, task: FakeTask) -> None:
        self.tasks, self.groups = {"t": task}, dict[str, Any]()


@pytest.mark.parametrize(
    ("task", "metric", "known", "whole"),
    [
        (ConfigurableTask("acc", "multiple_choice"), "acc", True, True),
        (ConfigurableTask("acc", "multiple_choice", own=True), "acc", True, False),
        (ConfigurableTask("acc", "multiple_choice", higher=False), "acc", False, True),
        (ConfigurableTask("exact_match", "generate_until"), "exact_match", True, True),
        (ConfigurableTask("exact_match", "generate_until", filters=["regex", "take_first"]), "exact_match", True, True),
        (ConfigurableTask("exact_match", "generate_until", filters=["take_first_k"]), "exact_match", True, False),
        (ConfigurableTask("exact_match", "generate_until", filters=[print, "take_first"]), "exact_match", True, False),
        (ConfigurableTask("pass@1", "generate_until"), "pass@1", True, False),
        (FakeTask("acc", "multiple_choice"), "acc", True, False),
        (ConfigurableTask("f1", "generate_until", own=True), "f1", False, False),
        (ConfigurableTask("likelihood", "multiple_choice"), "likelihood", False, False),
    ],
)
def test_what_is_known_of_a_metric(task: FakeTask, metric: str, known: bool, whole: bool) -> None:
    loaded: Any = Loaded(task)
    scope = scope_of(Check(metric=f"{metric},none", task="t", min=0.5), loaded)
    assert (scope.range is not None, scope.right_or_wrong) == (known, whole)


@pytest.mark.parametrize("limits", ["[0.0, 0.5]", "[0.0, 1.5]", "[-1.0, 2.0]"])
def test_another_range_than_right_or_wrong_can_be_explained(tmp_path: Path, limits: str) -> None:
    tasks = TASKS.with_name("evaluation_tasks")
    policy = tmp_path / "gate.toml"
    policy.write_text(
        f'[models.main]\nbase_url = "http://127.0.0.1:9"\nmodel = "m"\n[options]\ninclude_path = "{tasks}"\n'
        f'[[checks]]\ntask = "counting"\nmetric = "exact_match"\nmin = 0.3\nrange = {limits}\n'
    )
    found = CliRunner().invoke(gate, [str(policy), "--explain"])
    assert found.exit_code == 0, found.output


def test_an_undecided_score_is_not_said_to_fall_short(server: ScriptedServer, tmp_path: Path) -> None:
    answering(server, lambda number: 1.0 if number % 4 else 0.5)
    stopping = EarlyStopping(order_seed=3, budget=Budget(documents=60))
    asked = specification(server, tmp_path, credit(min=0.85))
    run = evaluate(msgspec.structs.replace(asked, early_stopping=stopping, triage=True))
    (result,) = run.checks
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.value is not None
    assert result.value > 0.85
    assert run.triage is not None
    assert run.triage.headline.endswith("the answers that were scored are no worse than the check demands")


def test_explain_knows_that_a_group_of_unequal_tasks_needs_more_documents(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(
        "from datasets import Dataset\n"
        "def load(n, **_):\n"
        "    return {'test': Dataset.from_list([{'question': str(i), 'answer': str(i)} for i in range(n)])}\n"
    )
    template = (TASKS.with_name("evaluation_tasks") / "_template_yaml").read_text()
    (tmp_path / "_template_yaml").write_text(template)
    for name, size in (("small", 5), ("large", 1000)):
        (tmp_path / f"{name}.yaml").write_text(f"include: _template_yaml\ntask: {name}\ndataset_kwargs:\n  n: {size}\n")
    (tmp_path / "alike.yaml").write_text(
        "group: alike\ntask: [small, large]\naggregate_metric_list:\n  - metric: exact_match\n    aggregation: mean\n"
        "    weight_by_size: false\n    filter_list: get-answer\n"
    )
    file = tmp_path / "gate.toml"
    file.write_text(
        '[models.main]\nbase_url = "http://127.0.0.1:9"\nmodel = "m"\n[options]\ninclude_path = "."\n'
        "[budget]\ndocuments = 500\n"
        '[[checks]]\ntask = "alike"\nmetric = "exact_match,get-answer"\nmin = 0.6\n'
    )
    (outlook,) = json.loads(shown(gate, str(file), "--explain", "--json").stdout)
    assert outlook["healthy_documents"] > 500
    assert outlook["broken_documents"] > 200
    assert outlook["detectable"] > 0.3
