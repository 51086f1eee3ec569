"""Whole runs of tasks scored by log-likelihood: beside lm-eval on the same server, resumed, refused, failing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import UnsupportedTaskError
from assay.evaluation import Evaluation, evaluate
from assay.journal import find_journals, records
from assay.journal.records import ResponseRecord
from assay.rescoring.rescore import score
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from assay.types import Answer, FailureCause, LogprobSource, ModelSpec, Outcome, Specification, TaskOptions
from tests.servers.echoing import ImaginaryModel
from tests.servers.scripted import ScriptedServer
from tests.small_tokenizer import write_small_tokenizer
from tests.tasks.lm_eval_client import lm_eval_client

TASKS = Path(__file__).parents[1] / "loglikelihood_tasks"
MAX_LENGTH = 120
"""Small, so that texts take several windows and prompts are cut."""
ALL = ("choosing", "continuing", "reading", "writing")
TRIAL = 2
"""Questions that try the server out."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def model(folder: str) -> ImaginaryModel:
    return ImaginaryModel(HuggingFaceTokenizer(folder))


def answer(model: ImaginaryModel, body: dict[str, Any]) -> Any:
    return model.vllm(body) if body["max_tokens"] == 1 else "2"


@pytest.fixture
def server(model: ImaginaryModel) -> Iterator[ScriptedServer]:
    with ScriptedServer(answer=lambda body: answer(model, body), models=["imaginary"]) as running:
        yield running


def specification(server: ScriptedServer, output_dir: Path, tasks: tuple[str, ...], **model: Any) -> Specification:
    fields: dict[str, Any] = {"endpoint": "completions", "max_length": MAX_LENGTH, "concurrency": 4}
    return Specification(
        tasks=tasks,
        model=ModelSpec(base_url=server.url, model="imaginary", **fields | model),
        options=TaskOptions(include_path=str(TASKS)),
        output_dir=str(output_dir),
    )


def sample_lines(evaluation: Evaluation, task: str) -> list[dict[str, Any]]:
    stamp = evaluation.results_file.stem.removeprefix("results_")
    file = evaluation.results_file.with_name(f"samples_{task}_{stamp}.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def test_results_samples_and_bodies_are_lm_evals(server: ScriptedServer, folder: str, tmp_path: Path) -> None:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import handle_non_serializable, sanitize_list

    theirs = simple_evaluate(
        # More than one at once, for then lm-eval adds no stop sequence of the tokenizer's.
        model=lm_eval_client(server.url, folder, model="imaginary", max_length=MAX_LENGTH, num_concurrent=2),
        tasks=list(ALL),
        task_manager=TaskManager(include_defaults=False, include_path=str(TASKS)),
        bootstrap_iters=1000,
    )
    their_bodies = Counter(request.raw for request in server.requests)
    asked = server.count
    ours = evaluate(specification(server, tmp_path, ALL, tokenizer=folder))
    our_bodies = Counter(request.raw for request in server.requests[asked + TRIAL :])
    assert ours.failures == ()
    assert our_bodies == their_bodies
    for task in ALL:
        for key, value in theirs["results"][task].items():
            assert "perplexity_stderr" in key or ours.results["results"][task][key] == value, (task, key)
        for got, expected in zip(sample_lines(ours, task), theirs["samples"][task], strict=True):
            expected |= {field: sanitize_list(expected[field]) for field in ("resps", "filtered_resps")}
            expected = json.loads(json.dumps(expected, default=handle_non_serializable))
            # lm-eval changes these two when it writes them; the recorded runs show how.
            del expected["arguments"], expected["target"]
            assert {field: got[field] for field in expected} == expected


@pytest.mark.parametrize("way", ["vllm_without_echo", "sglang", "llama_cpp_native"])
@pytest.mark.parametrize("sends_ids", [True, False])
def test_the_values_are_the_same_whatever_the_way(
    model: ImaginaryModel, server: ScriptedServer, folder: str, tmp_path: Path, way: str, sends_ids: bool
) -> None:
    def answer_by_the_way(body: dict[str, Any]) -> Any:
        return getattr(model, way)(body) if body.get("max_tokens", 1) == 1 else "2"

    how = {"tokenizer": folder, "tokenized_requests": sends_ids}
    by_echo = evaluate(specification(server, tmp_path / "echo", ALL, **how))
    pages = {"/generate": model.sglang} if way == "sglang" else {"/completion": getattr(model, way)}
    with ScriptedServer(answer=answer_by_the_way, models=["imaginary"], json_pages=pages) as other:
        by_the_way = evaluate(specification(other, tmp_path / way, ALL, **how))
        assert evaluate(specification(other, tmp_path / way, ALL, **how)).failures == ()
    assert by_the_way.failures == ()
    for task in ALL:
        if way == "llama_cpp_native" and task == "reading":  # summed token by token, not window by window
            for score, expected in zip(by_the_way.scores, by_echo.scores, strict=True):
                assert score.value == pytest.approx(expected.value, rel=1e-12)
            continue
        assert by_the_way.results["results"][task] == by_echo.results["results"][task]
        assert sample_lines(by_the_way, task) == sample_lines(by_echo, task)


def test_a_document_s_requests_follow_one_another(server: ScriptedServer, folder: str, tmp_path: Path) -> None:
    evaluate(specification(server, tmp_path, ("choosing",), tokenizer=folder, concurrency=1))
    prompts = [HuggingFaceTokenizer(folder).decode(request.body["prompt"][0]) for request in server.requests[TRIAL:]]
    questions = [prompt.split("?")[0] for prompt in prompts if "?" in prompt]
    assert questions == [question for question in dict.fromkeys(questions) for _ in range(4)]


def test_outcomes_tell_answers_from_failures_alone(server: ScriptedServer, folder: str, tmp_path: Path) -> None:
    evaluation = evaluate(specification(server, tmp_path, ("choosing", "reading"), tokenizer=folder))
    for each in evaluation.scores:
        assert each.outcomes[Outcome.ANSWERED] == each.n == 12


def test_the_journal_holds_values_and_no_prompt(server: ScriptedServer, folder: str, tmp_path: Path) -> None:
    evaluate(specification(server, tmp_path, ("choosing",), tokenizer=folder))
    (journal,) = find_journals(tmp_path / "imaginary" / "journal")
    answers = [record.response for record in records(journal) if isinstance(record, ResponseRecord)]
    assert len(answers) == 12 * 8
    for response in answers:
        assert isinstance(response, Answer)
        assert response.text is None
        assert response.logprob is not None
        assert response.is_greedy is not None


def test_what_is_in_the_journal_is_not_asked_again(
    model: ImaginaryModel, folder: str, tmp_path: Path, server: ScriptedServer
) -> None:
    whole = evaluate(specification(server, tmp_path / "whole", ("reading",), tokenizer=folder))
    needed = server.count - TRIAL
    asked = 0

    def refuse_the_second_half(body: dict[str, Any]) -> Any:
        nonlocal asked
        asked += "prompt" in body
        if asked > TRIAL + needed // 2:
            raise ValueError("closed")
        return model.vllm(body)

    with ScriptedServer(answer=refuse_the_second_half, models=["imaginary"]) as closing:
        spec = specification(closing, tmp_path / "resumed", ("reading",), tokenizer=folder)
        first = evaluate(spec)
        assert first.failures
        closing.answer, before = model.vllm, closing.count
        second = evaluate(spec)
        assert closing.count - before == TRIAL + needed - needed // 2
    assert second.failures == ()
    assert second.results["results"] == whole.results["results"]


def test_without_a_tokenizer_the_servers_tokens_give_the_same_scores(
    server: ScriptedServer, folder: str, tmp_path: Path
) -> None:
    ours, theirs = (
        {line["doc_id"]: line["resps"] for line in sample_lines(evaluate(spec), "continuing")}
        for spec in (
            specification(server, tmp_path / str(tokenizer), ("continuing",), tokenizer=tokenizer)
            for tokenizer in (folder, None)
        )
    )
    # Every fourth answer is Japanese, of whose characters each token is a part; such a sample fails.
    assert theirs == {doc_id: responses for doc_id, responses in ours.items() if doc_id % 4 != 2}


def test_prompt_logprobs_give_the_same_scores(
    server: ScriptedServer, model: ImaginaryModel, folder: str, tmp_path: Path
) -> None:
    by_echo = evaluate(specification(server, tmp_path / "echo", ("choosing", "reading"), tokenizer=folder))
    with ScriptedServer(answer=model.vllm_without_echo, models=["imaginary"]) as other:
        without = evaluate(specification(other, tmp_path / "without", ("choosing", "reading"), tokenizer=folder))
    assert without.results["results"] == by_echo.results["results"]
    again = score(without.results_file)
    assert not again.changed_prompts
    assert not again.differences


def test_answers_are_scored_again_without_the_server(server: ScriptedServer, folder: str, tmp_path: Path) -> None:
    ours = evaluate(specification(server, tmp_path, ALL, tokenizer=folder))
    asked = server.count
    again = score(ours.results_file)
    assert server.count == asked
    assert not again.changed_prompts
    assert not again.differences
    assert {score.task: score.n for score in again.scores} == {score.task: score.n for score in ours.scores}


@pytest.mark.parametrize("kind", ["llama_cpp", "llama_cpp_python", "transformers_serve", "shifted"])
def test_a_server_without_right_log_probabilities_is_refused_before_the_run(
    model: ImaginaryModel, folder: str, tmp_path: Path, kind: str
) -> None:
    with (
        ScriptedServer(answer=getattr(model, kind), models=["imaginary"]) as server,
        pytest.raises(UnsupportedTaskError, match="log-probabilities"),
    ):
        evaluate(specification(server, tmp_path, ("choosing",), tokenizer=folder))
    assert server.count <= len(LogprobSource) * TRIAL
    assert find_journals(tmp_path / "imaginary" / "journal") == []


def test_generative_tasks_need_no_log_probabilities(folder: str, tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda body: "2", models=["imaginary"]) as server:
        evaluation = evaluate(specification(server, tmp_path, ("writing",), tokenizer=folder))
    assert evaluation.failures == ()
    assert server.count == 12


def test_chat_is_refused(server: ScriptedServer, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTaskError, match="chat completions cannot give"):
        evaluate(specification(server, tmp_path, ("choosing",), endpoint="chat"))
    assert server.count == 0


def test_a_reply_without_log_probabilities_fails_its_sample_and_is_asked_once(
    model: ImaginaryModel, folder: str, tmp_path: Path
) -> None:
    def forgetful(body: dict[str, Any]) -> Any:
        return model.transformers_serve(body) if len(body["prompt"][0]) % 7 == 0 else model.vllm(body)

    with ScriptedServer(answer=forgetful, models=["imaginary"]) as server:
        evaluation = evaluate(specification(server, tmp_path, ("continuing",), tokenizer=folder))
        assert 0 < len(evaluation.failures) < 12
        assert {failed.cause for failed in evaluation.failures} == {FailureCause.UNREADABLE_REPLY}
        assert server.count == TRIAL + 12


def test_a_continuation_that_fills_the_whole_context_fails_without_being_sent(
    server: ScriptedServer, folder: str, tmp_path: Path
) -> None:
    evaluation = evaluate(specification(server, tmp_path, ("continuing",), tokenizer=folder, max_length=8))
    assert {failed.cause for failed in evaluation.failures} == {FailureCause.CONTEXT_TOO_LONG}
    assert server.count == TRIAL + 12 - len(evaluation.failures)
