"""Programs scored in the sandbox."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assay.cli.helm import helm
from assay.errors import DataNotFoundError, FileFormatError, UnsupportedTaskError
from assay.helm import MetricSpec, Reference, ScenarioState, UnsafeCode, create_metric
from assay.helm.metrics.base import Metric
from assay.helm.scoring.code import Problem, pass_at_k, read_problems
from assay.helm.tokenization import EncoderService
from tests.helm.states import generation, result, state

PROBLEM = {
    "task_id": "HumanEval/x",
    "prompt": "def double(number):\n",
    "canonical_solution": "    return 2 * number\n",
    "test": "def check(candidate):\n    assert candidate(4) == 8\n",
    "entry_point": "double",
}
RIGHT, WRONG = "return 2 * number", "return number"


def code_run(*answers: tuple[str, ...], problem: dict[str, Any] | None = None) -> ScenarioState:
    """A run of one programming problem, asked about several times; its references carry tests if given a problem."""
    states = []
    for number, texts in enumerate(answers):
        one = generation(number, result(*texts), [PROBLEM["canonical_solution"]]).to_builtins()
        one["instance"]["input"]["text"] = PROBLEM["prompt"]
        if problem:
            one["instance"]["references"][0]["test_cases"] = problem
        states.append(one)
    plain = state([], num_outputs=len(answers[0])).to_builtins()
    return ScenarioState.from_builtins({**plain, "request_states": states})


def metric(*names: str) -> Metric:
    made = create_metric(
        MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": list(names)})
    )
    assert isinstance(made, Metric)
    return made


def means(stats: Any, *names: str) -> list[float]:
    found = {stat.name.name: stat.mean for stat in stats if stat.name.perturbation is None}
    return [found[name] for name in names]


def test_scores_come_in_the_order_of_their_names(tokenizer: EncoderService) -> None:
    run = code_run((WRONG, RIGHT), (RIGHT, RIGHT), problem=PROBLEM)
    names = ("code_eval_acc", "exact_match", "pass")
    evaluated = metric(*names).evaluate(run, tokenizer, unsafe_code=UnsafeCode())
    given = [stat.name.name for stat in evaluated.per_instance_stats[0].stats]
    assert [name for name in given if name.partition("@")[0] in names] == [
        name for score in names for name in (score, f"{score}@2")
    ]
    assert means(evaluated.aggregated_stats, "code_eval_acc", "code_eval_acc@2", "pass", "pass@2") == [0.5, 1, 0.75, 1]


def test_tests_may_come_from_a_file(tmp_path: Path, tokenizer: EncoderService) -> None:
    file = tmp_path / "HumanEval.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(PROBLEM).encode() + b"\n\n"))
    evaluated = metric("pass").evaluate(code_run((RIGHT,), (WRONG,)), tokenizer, unsafe_code=UnsafeCode(file))
    assert means(evaluated.aggregated_stats, "pass") == [0.5]


def test_an_instance_without_tests_is_not_scored(tmp_path: Path, tokenizer: EncoderService) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text(json.dumps({**PROBLEM, "prompt": "another", "canonical_solution": "another"}))
    evaluated = metric("pass").evaluate(code_run((RIGHT,)), tokenizer, unsafe_code=UnsafeCode(file))
    assert evaluated.unscored == ["instance id0, trial 0: there are no tests for its programs"]


def test_nothing_runs_unasked(tokenizer: EncoderService) -> None:
    with pytest.raises(UnsupportedTaskError, match="'pass' runs code that the model wrote"):
        metric("exact_match", "pass").evaluate(code_run((RIGHT,), problem=PROBLEM), tokenizer)


def test_a_run_without_tests_says_where_they_are(tokenizer: EncoderService) -> None:
    with pytest.raises(DataNotFoundError, match=r"HumanEval\.jsonl"):
        metric("pass").evaluate(code_run((RIGHT,)), tokenizer, unsafe_code=UnsafeCode())


@pytest.mark.parametrize("content", ['{"prompt": 1}', "{", '{"prompt": "p"}'])
def test_damaged_tests_name_the_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "tests.jsonl"
    file.write_text(json.dumps(PROBLEM) + "\n" + content)
    with pytest.raises(FileFormatError, match="line 2 is not a problem"):
        list(read_problems(file))
    with pytest.raises(DataNotFoundError, match="there is no file"):
        list(read_problems(tmp_path / "none"))


def test_tests_are_found_where_helm_keeps_them(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "v1" / "code"
    folder.mkdir(parents=True)
    (folder / "scenario_state.json").write_bytes(code_run((RIGHT,)).to_json())
    command = ["evaluate", str(folder), "--metric", "pass"]
    refused = CliRunner().invoke(helm, command)
    assert isinstance(refused.exception, UnsupportedTaskError)
    kept = tmp_path / "scenarios" / "code" / "HumanEval.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(PROBLEM))
    done = CliRunner().invoke(helm, [*command, "--confirm-run-unsafe-code", "--json"])
    assert done.exit_code == 0, done.output
    stats = json.loads((folder / "stats.json").read_bytes())
    assert [stat["mean"] for stat in stats if stat["name"] == {"name": "pass", "split": "test"}] == [1.0]


def test_pass_at_k() -> None:
    assert [pass_at_k(4, 2, k) for k in (1, 2, 3)] == [0.5, pytest.approx(1 - 1 / 6), 1.0]


def test_references_keep_their_tests() -> None:
    reference = {"output": {"text": "x"}, "tags": [], "test_cases": PROBLEM}
    assert Reference.from_builtins(reference).to_builtins() == reference
    assert Problem(**{key: value for key, value in PROBLEM.items() if key != "task_id"}).entry_point == "double"


@pytest.mark.parametrize(
    "content", [b'{"x":' + b"[" * 100_000, b'{"prompt": "\xff"}', gzip.compress(b"{}", mtime=0)[:10] + b"\xff" * 20]
)
def test_damaged_problems_are_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"problems\.jsonl"):
        list(read_problems(file))
