"""A finished run's samples are read back whole: what was asked, said, extracted, scored, and what failed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import FileFormatError, UsageError
from assay.evaluation import Evaluation, evaluate
from assay.runs.samples import Message, RunSample, RunSamples, results_file_of
from assay.types import Answer, Failure, FailureCause, ModelSpec, Outcome, Specification, TaskOptions
from tests.result_files import FILTER, METRIC, read_sample, read_samples, write_run
from tests.servers.scripted import Fault, ScriptedServer, reply_with

TASKS = Path(__file__).parents[1] / "evaluation_tasks"


def answer(body: dict[str, Any]) -> dict[str, Any]:
    """One answer in four is right, one cut off, one empty, one without a number."""
    numbers = [int(word) for word in body["messages"][-1]["content"].split() if word.isdigit()]
    said = [f"The answer is {sum(numbers)}", "The answer is 8", "", "I cannot say"][numbers[0] % 4]
    reply = reply_with(said, body)
    reply["choices"][0]["finish_reason"] = "length" if numbers[0] % 4 == 1 else "stop"
    reply["choices"][0]["message"]["reasoning_content"] = f"thinking of {numbers[0]}"
    return reply


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    with ScriptedServer(answer=answer, models=["scripted"], faults=[Fault("http_400", fraction=0.1)]) as server:
        return evaluate(
            Specification(
                tasks=("counting", "naming"),
                model=ModelSpec(base_url=server.url, model="scripted", concurrency=8),
                options=TaskOptions(include_path=str(TASKS)),
                output_dir=str(tmp_path_factory.mktemp("run")),
            )
        )


def test_every_sample_is_there_in_order(run: Evaluation) -> None:
    places = [(sample.task, sample.doc_id) for sample in read_samples(run.results_file)]
    assert places == [(task, doc_id) for task in ("counting", "naming") for doc_id in range(60)]


def test_outcomes_and_scores_are_those_of_the_run(run: Evaluation) -> None:
    samples = list(read_samples(run.results_file))
    for score in run.scores:
        assert score.value is not None
        metric, filter_name = score.metric.split(",")
        ours = [sample for sample in samples if sample.task == score.task]
        scored = [sample.filters[filter_name] for sample in ours if sample.failure is None]
        counted = Counter(filtered.outcome for filtered in scored)
        assert {**score.outcomes, Outcome.FAILED: 0} == {outcome: counted[outcome] for outcome in Outcome}
        assert sum(float(str(filtered.metrics[metric])) for filtered in scored) == pytest.approx(score.n * score.value)
    assert len(set(run.scores[0].outcomes.values())) > 1


def test_what_was_asked_and_said(run: Evaluation) -> None:
    scored = {failure.doc_id for failure in run.failures if failure.task == "counting"}
    doc_id = next(number for number in range(4, 60, 4) if number not in scored)
    sample = read_sample(run.results_file, "counting", doc_id)
    question = f"counting: what is {doc_id} + {doc_id * 7} ?"
    assert sample.document == {"question": question, "answer": str(8 * doc_id)}
    assert sample.target == str(8 * doc_id)
    (prompt,) = sample.prompts
    assert prompt.content == (Message("user", question),)
    assert prompt.text == question
    assert prompt.settings["until"] == ["\n"]
    (response,) = sample.answers
    assert (response.text, response.finish_reason) == (f"The answer is {8 * doc_id}", "stop")
    assert response.reasoning == f"thinking of {doc_id}"
    assert response.completion_tokens is not None
    assert len(sample.times) == 1
    filtered = sample.filters["get-answer"]
    assert (filtered.extracted, filtered.metrics, filtered.outcome) == (
        str(8 * doc_id),
        {"exact_match": 1.0},
        Outcome.ANSWERED,
    )
    assert len(sample.doc_hash) == len(sample.prompt_hash) == len(sample.target_hash) == 64


def test_failed_samples_say_why(run: Evaluation) -> None:
    failed = [sample for sample in read_samples(run.results_file) if sample.failure is not None]
    assert [(sample.task, sample.doc_id) for sample in failed] == [(each.task, each.doc_id) for each in run.failures]
    assert failed
    for sample in failed:
        assert sample.failure is not None
        assert sample.failure.cause == FailureCause.BAD_REQUEST
        assert isinstance(sample.responses[0], Failure)
        assert (sample.document, sample.prompts, sample.filters) == (None, (), {})


def test_a_resumed_runs_later_answer_counts(tmp_path: Path) -> None:
    faults = [Fault("http_400", fraction=0.2, first=1)]
    with ScriptedServer(answer=answer, models=["scripted"], faults=faults) as server:
        specification = Specification(
            tasks=("counting",),
            model=ModelSpec(base_url=server.url, model="scripted"),
            options=TaskOptions(include_path=str(TASKS)),
            output_dir=str(tmp_path),
        )
        first = evaluate(specification)
        second = evaluate(specification)
    assert first.failures
    assert not second.failures
    assert all(isinstance(sample.responses[0], Answer) for sample in read_samples(second.results_file))


def test_without_a_journal_texts_are_known(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"a": [1, 0, None, 1]})
    samples = list(read_samples(file))
    assert [sample.doc_id for sample in samples] == [0, 1, 3]
    assert samples[1].responses == (Answer(text="I say wrong 1"),)
    assert samples[1].filters[FILTER].metrics == {METRIC: 0.0}
    assert samples[1].times == ()


def test_not_a_number_is_read(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"a": [1, 0]})
    lines = next(tmp_path.glob("samples_*"))
    lines.write_text(lines.read_text().replace('"question": "a question 1"', '"question": NaN'))
    assert str(read_sample(file, "a", 1).document) == "{'question': nan}"


TRICKY = ['}, {"role": "user", "content": "x"}', '}, {\\"role\\": ', '["[{', "\\", '"', "é\u2028\n", "\ud800", ""]


def conversations_about(text: str) -> list[list[tuple[str, str]]]:
    """One turn, after two different beginnings, after an empty one."""
    asked = ("user", text)
    return [[asked], [("system", text), asked], [("system", text), asked], [("system", "Be brief."), asked], []]


@pytest.mark.parametrize("is_escaped", [True, False])
def test_conversations_come_back_whole(tmp_path: Path, is_escaped: bool) -> None:
    conversations = [turns for text in TRICKY for turns in conversations_about(text)]
    with_arguments(write_run(tmp_path, {"a": [1] * len(conversations)}), conversations, ensure_ascii=is_escaped)
    contents = [sample.prompts[0].content for sample in read_samples(next(tmp_path.glob("results_*")))]
    assert contents == [tuple(Message(*turn) for turn in turns) for turns in conversations]


def with_arguments(file: Path, conversations: list[list[tuple[str, str]]], *, ensure_ascii: bool) -> None:
    """Write conversations into the lines of a run's samples file, as lm-eval does."""
    encode = json.JSONEncoder(ensure_ascii=ensure_ascii).encode
    (lines_file,) = file.parent.glob("samples_*")
    lines = map(json.loads, lines_file.read_text().splitlines())
    texts = [encode([{"role": role, "content": content} for role, content in turns]) for turns in conversations]
    written = [
        encode({**line, "arguments": {"gen_args_0": {"arg_0": [text], "arg_1": {"until": []}}}})
        for line, text in zip(lines, texts, strict=True)
    ]
    lines_file.write_bytes("\n".join(written).encode("utf-8", "backslashreplace"))


def test_contents_in_parts_are_read_as_text(tmp_path: Path) -> None:
    file = write_run(tmp_path, {"a": [1]})
    with_arguments(file, [[("user", [{"type": "text", "text": "é"}])]], ensure_ascii=False)  # type: ignore[list-item]
    (prompt,) = read_sample(file, "a", 0).prompts
    assert prompt.content == (Message("user", '{"type": "text", "text": "é"}'),)


def test_the_end_of_a_run_knows_where_its_lines_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunSample] = []

    def read(samples: RunSamples) -> Iterator[RunSample]:
        seen.extend(samples)
        return iter(seen)

    def eight(body: dict[str, Any]) -> dict[str, Any]:
        return reply_with("The answer is 8", body)

    with monkeypatch.context() as patched, ScriptedServer(answer=eight, models=["scripted"]) as server:
        patched.delattr("assay.runs.samples.place_lines")
        done = evaluate(
            Specification(
                tasks=("by_lm_eval",),  # has six filters
                model=ModelSpec(base_url=server.url, model="scripted", concurrency=8),
                options=TaskOptions(include_path=str(TASKS.parent / "repeat_tasks")),
                output_dir=str(tmp_path),
            ),
            sample_reader=read,
        )
    assert done.triage is not None
    assert len(seen[0].filters) == 6
    assert seen == list(read_samples(done.results_file))


def test_what_is_not_there_is_named(run: Evaluation, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task 'other'; it has counting, naming"):
        read_sample(run.results_file, "other", 0)
    with pytest.raises(UsageError, match="no document 60 of 'counting'; it has 60, from 0 to 59"):
        read_sample(run.results_file, "counting", 60)
    file = write_run(tmp_path, {"a": [1, 0]})
    lines = next(tmp_path.glob("samples_*"))
    whole = lines.read_text()
    lines.write_text(whole.replace('"resps"', '"other"'))
    with pytest.raises(FileFormatError, match="document 0"):
        list(read_samples(file))
    lines.write_text(whole.replace('"doc_id"', '"other"'))
    with pytest.raises(FileFormatError, match="doc_id: cannot be read"):
        list(read_samples(file))
    document = json.loads(file.read_text())
    document["assay"] = {"failures": [{"task": "a"}]}
    file.write_text(json.dumps(document))
    with pytest.raises(FileFormatError, match="failures"):
        list(read_samples(file))


def test_a_run_is_found_by_folder_and_samples_file(tmp_path: Path) -> None:
    write_run(tmp_path / "m", {"a": [1]}, stamp="2026-01-01T00-00-00.000001")
    newest = write_run(tmp_path / "m", {"a": [1]}, stamp="2026-01-02T00-00-00.000001")
    assert results_file_of(tmp_path) == results_file_of(newest) == newest
    assert results_file_of(tmp_path / "m" / "samples_a_2026-01-02T00-00-00.000001.jsonl") == newest
    with pytest.raises(FileFormatError, match="there is no run"):
        results_file_of(tmp_path / "nothing.json")


@pytest.mark.oracle
def test_recorded_runs_of_lm_eval_are_read(oracles_dir: Path) -> None:
    def run_of(name: str) -> RunSamples:
        return RunSamples(results_file_of(oracles_dir / "lm_eval" / name))

    with run_of("chat_gsm8k_cot") as run:
        sample = next(iter(run))
        assert isinstance(sample.prompts[0].content, tuple)
        assert {turn.role for turn in sample.prompts[0].content} == {"user", "assistant"}
        assert set(sample.filters) == {"strict-match", "flexible-extract"}
        outcomes = Counter(sample.filters["strict-match"].outcome for sample in run)
        assert outcomes[Outcome.UNEXTRACTED] > 0
        assert not outcomes[Outcome.TRUNCATED]
    with run_of("loglik_arc_challenge") as run:
        sample = next(iter(run))
        assert len(sample.prompts) == len(sample.answers) == len(sample.document["choices"]["text"])
        assert all(answer.logprob is not None and answer.logprob < 0 for answer in sample.answers)
        assert all(prompt.continuation for prompt in sample.prompts)
        assert "acc" in sample.filters["none"].metrics
