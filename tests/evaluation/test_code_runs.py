"""Tasks that run code which the model writes: whole runs, and the same numbers as lm-eval."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import SandboxError, UnsupportedTaskError
from assay.evaluation import Evaluation, evaluate
from assay.results.check_results import Verdict
from assay.sandbox.pool import Sandbox
from assay.tasks.library import load_tasks
from assay.types import Check, EarlyStopping, FailureCause, ModelSpec, Specification, TaskOptions
from tests.servers.scripted import ScriptedServer
from tests.servers.wire import Body

TASKS = Path(__file__).parents[1] / "code_tasks"
OWN = TaskOptions(include_path=str(TASKS), confirm_run_unsafe_code=True)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this machine may be reached, and the hub's name is not even looked up."""
    look_up = socket.getaddrinfo

    def guarded(host: Any, *rest: Any, **options: Any) -> Any:
        assert host in ("127.0.0.1", "localhost", None), f"{host} is looked up"
        return look_up(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", guarded)


def run(answer: Callable[[Body], str], folder: Path, **specification: Any) -> Evaluation:
    endpoint = specification.pop("endpoint", "chat")
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        model = ModelSpec(base_url=server.url, model="scripted", endpoint=endpoint, concurrency=8)
        return evaluate(Specification(model=model, output_dir=str(folder), **specification))


def sample_lines(evaluation: Evaluation) -> list[Any]:
    [file] = evaluation.results_file.parent.glob("samples_*.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


# -- lm-eval's tasks, on their data -----------------------------------------------------------------------------------


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def solve(data_dir: Path) -> Callable[[Body], str]:
    """Answers with the data set's own solutions."""
    humaneval = rows(data_dir / "openai/openai_humaneval/openai_humaneval/test.jsonl")
    mbpp = rows(data_dir / "google-research-datasets/mbpp/full/test.jsonl")
    completions = {row["prompt"].strip(): row["canonical_solution"] for row in humaneval}
    programs = {row["text"].strip(): row["code"] for row in mbpp}

    def answer(body: Body) -> str:
        if "messages" not in body:
            asked = str(body["prompt"])
            if asked.strip() in completions:
                return str(completions[asked.strip()])
            return str(programs[asked.rpartition("your task: ")[2].partition(" Your code should")[0].strip()])
        asked = body["messages"][-2]["content"]
        if "solution to the following problem" in asked:
            return f"{completions[asked.partition('```python')[2].rpartition('```')[0].strip()]}\n```\nThat is all."
        program = programs[asked.rpartition("your task:\n")[2].partition("\nYour code should")[0].strip()]
        return f"\n{program}\n```"  # without the first line break, lm-eval takes the first word for a language

    return answer


@pytest.mark.data
@pytest.mark.parametrize(
    ("task", "metric", "endpoint"),
    [
        ("humaneval", "pass@1,create_test", "completions"),
        ("humaneval_instruct", "pass@1,create_test", "chat"),
        ("mbpp", "pass_at_1,none", "completions"),
        ("mbpp_instruct", "pass_at_1,extract_code", "chat"),
    ],
)
def test_right_and_wrong_programs(
    solve: Callable[[Body], str], data_dir: Path, tmp_path: Path, task: str, metric: str, endpoint: str
) -> None:
    settings: dict[str, Any] = {
        "tasks": (task,),
        "endpoint": endpoint,
        "options": TaskOptions(data_dir=str(data_dir), limit=25, confirm_run_unsafe_code=True),
        "checks": (Check(metric=metric, min=0.9),),
    }
    right = run(solve, tmp_path / "right", **settings)
    assert right.results["results"][task][metric] == 1.0
    assert right.failures == ()
    assert [check.verdict for check in right.checks] == [Verdict.PASS]
    assert set(right.results["assay"]["provenance"]["sandbox"]) == {"system_calls", "files", "namespaces", "user"}
    wrong = run(lambda body: f"    return NotImplemented\n{solve(body)[:0]}", tmp_path / "wrong", **settings)
    assert wrong.results["results"][task][metric] == 0.0
    assert [check.verdict for check in wrong.checks] == [Verdict.FAIL]


def test_they_are_refused_unless_allowed(tmp_path: Path) -> None:
    for task in ("humaneval", "mbpp_instruct", "cruxeval_input", "passing"):
        with pytest.raises(UnsupportedTaskError, match=rf"^task '{task}' runs code .* --confirm-run-unsafe-code"):
            load_tasks([task], TaskOptions(include_path=str(TASKS), data_dir=str(tmp_path)), {})


def test_programs_in_other_languages_are_refused() -> None:
    with pytest.raises(UnsupportedTaskError, match=r"^task 'longproc_pseudo_to_code_2k' compiles C\+\+"):
        load_tasks(["longproc_pseudo_to_code_2k"], TaskOptions(confirm_run_unsafe_code=True), {})


# -- as lm-eval scores ------------------------------------------------------------------------------------------------


class Scripted:
    """Four answers to every question, of which more are right the higher n is; the rest are wrong in every way."""

    WRONG = ("return -1", "raise KeyError", "import os; os._exit(0)", "return (")

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()

    def text(self, n: int, repeat: int) -> str:
        return f"return {n}" if repeat < n % 5 else self.WRONG[(n + repeat) % 4]

    def __call__(self, body: Body) -> str:
        n = int(body["messages"][-1]["content"].split()[-1])
        repeat = self.asked[n]
        self.asked[n] += 1
        return self.text(n, repeat)


def test_the_numbers_are_lm_evals(tmp_path: Path) -> None:
    from lm_eval.api.model import LM
    from lm_eval.evaluator import evaluate as lm_evals_evaluate

    script = Scripted()

    class Answering(LM):  # type: ignore[misc]
        tokenizer_name = "none"

        def generate_until(self, requests: Any) -> list[str]:
            seen: Counter[int] = Counter()
            texts = []
            for request in requests:
                texts.append(script.text(request.doc_id, seen[request.doc_id]))
                seen[request.doc_id] += 1
            return texts

        def loglikelihood(self, requests: Any) -> Any:
            raise NotImplementedError

        loglikelihood_rolling = loglikelihood

    task = load_tasks(["passing"], OWN, {}).tasks["passing"]
    theirs = lm_evals_evaluate(
        Answering(), {"tasks": {"passing": task}, "groups": {}, "group_map": {}}, confirm_run_unsafe_code=True
    )
    ours = run(script, tmp_path, tasks=("passing",), options=OWN)
    assert theirs is not None
    numbers = {key: value for key, value in theirs["results"]["passing"].items() if "pass@" in key}
    assert {key: value for key, value in ours.results["results"]["passing"].items() if "pass@" in key} == numbers
    assert numbers["pass@1,build"] == pytest.approx(0.5)
    assert set(numbers) == {f"{name},build" for k in (1, 2, 4) for name in (f"pass@{k}", f"pass@{k}_stderr")}
    by_document = {sample["doc_id"]: sample for sample in theirs["samples"]["passing"]}
    lines = sample_lines(ours)
    assert len(lines) == 10
    for line in lines:
        expected = by_document[line["doc_id"]]
        for key in ("filtered_resps", "metrics", "pass@1", "pass@2", "pass@4", "doc", "target"):
            assert line[key] == json.loads(json.dumps(expected[key])), key


def test_programs_asked_for_repeatedly_are_told_of_as_by_the_task_itself(tmp_path: Path) -> None:
    options = msgspec.structs.replace(OWN, repeats=4)
    done = run(Scripted(), tmp_path, tasks=("passing",), options=options)
    values = {score.metric: score.value for score in done.scores}
    assert values["pass@1_avg@4,build"] == pytest.approx(values["pass@1,build"])
    for k in (1, 2, 4):
        assert values[f"pass@1_pass@{k},build"] == pytest.approx(values[f"pass@{k},build"])


def test_a_run_that_stops_early_waits_for_the_programs(tmp_path: Path) -> None:
    evaluation = run(
        lambda body: f"return {body['messages'][-1]['content'].split()[-1]}",
        tmp_path,
        tasks=("passing",),
        options=OWN,
        checks=(Check(metric="pass@1,build", min=0.3, alpha=0.05),),
        early_stopping=EarlyStopping(order_seed=1),
    )
    assert [check.verdict for check in evaluation.checks] == [Verdict.PASS]


def test_programs_that_could_not_run_are_not_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Sandbox.submit

    def broken(self: Sandbox, program: Any) -> Any:
        if "return 3" in program.source:
            raise SandboxError("no memory")
        return submit(self, program)

    monkeypatch.setattr(Sandbox, "submit", broken)
    evaluation = run(
        lambda body: f"return {body['messages'][-1]['content'].split()[-1]}", tmp_path, tasks=("passing",), options=OWN
    )
    assert [(failure.doc_id, failure.cause) for failure in evaluation.failures] == [(3, FailureCause.UNSCORABLE)]
    assert "no memory" in evaluation.failures[0].message
    assert evaluation.results["results"]["passing"]["sample_len"] == 9


_KILLED = """
import os, sys
from assay import evaluate
from assay.sandbox.pool import Sandbox
from assay.types import ModelSpec, Specification, TaskOptions
submit = Sandbox.submit

def deadly(self, program):
    if "return 3" in program.source:
        os._exit(137)
    return submit(self, program)

Sandbox.submit = deadly
url, folder, tasks = sys.argv[1:]
evaluate(Specification(
    model=ModelSpec(base_url=url, model="scripted", endpoint="chat", concurrency=8),
    output_dir=folder,
    tasks=("passing",),
    options=TaskOptions(include_path=tasks, confirm_run_unsafe_code=True),
))
"""


def test_a_program_that_kills_the_run_twice_has_no_score_and_does_not_run_again(tmp_path: Path) -> None:
    def answer(body: Body) -> str:
        return f"return {body['messages'][-1]['content'].split()[-1]}"

    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        command = [sys.executable, "-c", _KILLED, server.url, str(tmp_path), str(TASKS)]
        ended = [subprocess.run(command, check=False, capture_output=True).returncode for _ in range(4)]
    assert ended == [137, 137, 0, 0]
    [*_, results] = sorted(tmp_path.glob("**/results_*.json"))
    told = json.loads(results.read_text())
    assert told["results"]["passing"]["sample_len"] == 9
    [failed] = told["assay"]["failures"]
    assert failed["doc_id"] == 3
    assert "died 2 times while this sample was scored" in failed["message"]
