"""Reasoning is taken out of answers as lm-eval takes it out, and kept."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.client.request_shape import validate_shape
from assay.client.thinking import without_thinking
from assay.errors import SpecificationError
from assay.evaluation import Evaluation, evaluate
from assay.reports.remarks import remarks
from assay.types import ModelSpec, Specification, TaskOptions
from tests.beside_lm_eval import sample_lines
from tests.servers.scripted import ScriptedServer, reply_with

TASKS = Path(__file__).parents[1] / "evaluation_tasks"
END = "</think>"
PIECES = st.lists(st.sampled_from([END, "<think>", "a", " ", "\n", "</thin", "k>", "42"]), max_size=8).map("".join)


@given(PIECES, st.sampled_from([END, "<|message|>", "a", None]))
def test_the_text_is_what_lm_eval_makes_of_it_and_nothing_is_lost(text: str, end: str | None) -> None:
    from lm_eval.models.utils import postprocess_generated_text

    answer, reasoning = without_thinking(text, None, end)
    assert answer == postprocess_generated_text(text, stop=None, think_end_token=end)
    assert answer is not None
    left_out = text[: len(text) - len(answer)]
    assert left_out.rstrip() == (reasoning or "").rstrip() or not left_out.strip()
    assert text.endswith(answer)


def test_null_stays_null_and_reasoning_apart_is_kept() -> None:
    assert without_thinking(None, "apart", END) == (None, "apart")
    assert without_thinking("more</think> 4", "apart, ", END) == ("4", "apart, more</think>")


def think(body: dict[str, Any]) -> Any:
    """Right answers after reasoning that holds wrong ones; every third breaks off in its reasoning."""
    total = sum(int(word) for word in body["messages"][-1]["content"].split() if word.isdigit())
    thought = f"<think>Perhaps the answer is {total + 1}? No.</think>"
    if total % 3 == 0:
        return reply_with("<think>The answer is 1, no, it is", body, finish_reason="length")
    reply = reply_with(f"{thought}\n\nThe answer is {total}", body)
    reply["usage"]["completion_tokens_details"] = {"reasoning_tokens": 10}
    return reply


def specification(server: ScriptedServer, tmp_path: Path, **model: Any) -> Specification:
    return Specification(
        tasks=("counting",),
        model=ModelSpec(base_url=server.url, model="scripted", concurrency=4, **model),
        options=TaskOptions(include_path=str(TASKS)),
        output_dir=str(tmp_path),
    )


def run(tmp_path: Path, **model: Any) -> Evaluation:
    with ScriptedServer(answer=think, models=["scripted"]) as server:
        return evaluate(specification(server, tmp_path, **model))


@pytest.mark.parametrize("stream", [False, True])
def test_a_run_scores_what_follows_and_reports_the_thinking(tmp_path: Path, stream: bool) -> None:
    kept, stripped = (
        run(tmp_path / "kept", stream=stream),
        run(tmp_path / "stripped", stream=stream, think_end_token=END),
    )
    n = len(sample_lines(stripped, "counting"))
    cut_off = sum(line["resps"][0][0].startswith("<think>") for line in sample_lines(stripped, "counting"))
    assert 0 < cut_off < n
    assert all(line["resps"][0][0].startswith("<think>") for line in sample_lines(kept, "counting"))
    assert score(stripped) > score(kept)
    totals = stripped.results["assay"]["totals"]
    assert totals["reasoning"]["answers"] == n - cut_off
    assert totals["reasoning"]["cut_off"] == cut_off
    if not stream:
        assert totals["reasoning"]["tokens"] == 10 * (n - cut_off)
    files = "".join(file.read_text(errors="replace") for file in (tmp_path / "stripped").rglob("*.jsonl"))

    assert "Perhaps the answer" not in files


def score(evaluation: Evaluation) -> float:
    value: float = evaluation.results["results"]["counting"]["exact_match,get-answer"]
    return value


def test_show_has_the_reasoning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from assay.cli import main

    evaluation = run(tmp_path, think_end_token=END)
    with pytest.raises(SystemExit):
        main(shlex.split(f"show {evaluation.results_file} --limit 3"))
    assert "Perhaps the answer" in capfd.readouterr().out


@pytest.mark.parametrize("budget", [5, 10])
def test_a_budget_is_sent_and_what_went_beyond_it_is_said(tmp_path: Path, budget: int) -> None:
    with ScriptedServer(answer=think, models=["scripted"]) as server:
        evaluation = evaluate(specification(server, tmp_path, think_end_token=END, thinking_budget=budget))
        assert {body["thinking_token_budget"] for body in server.answered} == {budget}
    reasoning = evaluation.results["assay"]["totals"]["reasoning"]
    assert reasoning["over_budget"] == (reasoning["answers"] if budget < 10 else 0)
    told = [line for line in remarks(evaluation.document) if line.startswith("thinking budget")]
    assert [line.partition(" went")[0] for line in told] == (
        [f"thinking budget: {reasoning['answers']} of {reasoning['answers']} answers"] if budget < 10 else []
    )


def test_a_server_that_counts_no_reasoning_leaves_the_budget_open(tmp_path: Path) -> None:
    def answer(body: dict[str, Any]) -> Any:
        return "<think>Well.</think> The answer is 4"

    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        evaluation = evaluate(specification(server, tmp_path, think_end_token=END, thinking_budget=5))
    assert any("is not known" in line for line in remarks(evaluation.document))


@pytest.mark.parametrize(("options", "says"), [({"dialect": "openai"}, "reasoning_effort"), ({}, "number of tokens")])
def test_a_budget_that_cannot_be_asked_for_is_refused(options: dict[str, Any], says: str) -> None:
    spec = ModelSpec(base_url="http://localhost:1", model="m", thinking_budget=5 if options else -1, **options)
    with pytest.raises(SpecificationError, match=says):
        validate_shape(spec)
