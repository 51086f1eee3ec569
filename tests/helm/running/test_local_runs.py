"""An engine in this process answers a HELM run, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import UnsupportedTaskError
from assay.helm import Request
from assay.helm.engines.local import LocalSource
from assay.helm.running.answering import answer_requests
from assay.helm.running.runs import read_run
from assay.progress import Progress
from assay.types import Completion, CompletionToken, FailureCause
from tests.helm.running.runs import number_of, write_run


class WordEngine:
    """Answers with the question's number; a token is a word."""

    batch_size = 4
    max_length = 100
    end_of_text = "</s>"

    def __init__(self, dies_at_batch: int | None = None) -> None:
        self.batches: list[list[int]] = []
        self.settings: list[set[Any]] = []
        self._dies_at_batch = dies_at_batch

    @property
    def identity(self) -> Mapping[str, Any]:
        return {"model": "words"}

    def check_supported(self, request: Request) -> None:
        if request.presence_penalty:
            raise UnsupportedTaskError("no penalties")

    def truncate_prompt(self, request: Request) -> Request:
        words = request.prompt.split(" ")
        if len(words) <= self.max_length:
            return request
        return msgspec.structs.replace(request, prompt=" ".join(words[: self.max_length]))

    def count_tokens(self, prompt: str) -> int:
        return len(prompt)

    def generate(self, requests: Sequence[Request]) -> Sequence[Sequence[Completion]]:
        if len(self.batches) == self._dies_at_batch:
            raise MemoryError
        self.batches.append([number_of(request) for request in requests])
        self.settings.append({request.max_tokens for request in requests})
        texts = (f"a{number_of(request)}</s> and more" for request in requests)
        return [[Completion(text=text, tokens=(CompletionToken(text, -1.0),))] for text in texts]


def answer(run_dir: Path, out: Path, engine: WordEngine) -> list[Any]:
    run = read_run(run_dir, "local/words")
    with answer_requests(run.run_spec, run.state, LocalSource(engine), out / "journal", Progress()) as done:
        assert not done.failures
    return done.state.request_states


def test_batches_hold_prompts_of_like_length_and_the_same_settings(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", count=12)
    state = read_run(run_dir, "m/m").state
    states = [
        msgspec.structs.replace(one, request=msgspec.structs.replace(one.request, max_tokens=3 + number % 2))
        for number, one in enumerate(state.request_states)
    ]
    (run_dir / "scenario_state.json").write_bytes(msgspec.structs.replace(state, request_states=states).to_json())
    engine = WordEngine()
    results = answer(run_dir, tmp_path, engine)
    assert engine.batches == [[10, 0, 2, 4], [6, 8], [11, 1, 3, 5], [7, 9]]
    assert all(len(settings) == 1 for settings in engine.settings)
    assert [one.answer.completions[0].text for one in results] == [f"a{number}" for number in range(12)]


def test_a_run_that_died_goes_on_with_the_next_batch(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "run", count=10)
    with pytest.raises(MemoryError):
        answer(run_dir, tmp_path, WordEngine(dies_at_batch=1))
    engine = WordEngine()
    results = answer(run_dir, tmp_path, engine)
    assert engine.batches == [[4, 5, 6, 7], [8, 9]]
    assert [one.answer.completions[0].text for one in results] == [f"a{number}" for number in range(10)]


def test_prompts_that_do_not_fit_are_cut_and_say_so(tmp_path: Path) -> None:
    engine = WordEngine()
    engine.max_length = 1
    engine.generate = lambda requests: [[Completion(text=request.prompt)] for request in requests]  # type: ignore[method-assign]
    run_dir = write_run(tmp_path / "run", count=2)
    run = read_run(run_dir, "local/words")
    with answer_requests(run.run_spec, run.state, LocalSource(engine), tmp_path, Progress()) as done:
        assert done.num_truncated == 2
    assert {(one.request.prompt, one.prompt_truncated) for one in done.state.request_states} == {("question", True)}


def test_a_prompt_that_is_scored_is_never_cut(tmp_path: Path) -> None:
    engine = WordEngine()
    engine.max_length = 11  # letters, which are this engine's tokens
    run_dir = write_run(tmp_path / "run", count=12, max_tokens=0, echo_prompt=True)
    run = read_run(run_dir, "local/words")
    with answer_requests(run.run_spec, run.state, LocalSource(engine), tmp_path, Progress()) as done:
        assert set(done.failures) == {10, 11}
    assert {failure.cause for failure in done.failures.values()} == {FailureCause.CONTEXT_TOO_LONG}
    assert done.state.request_states[10].result is None
    assert done.state.request_states[10].request.prompt == "question 10:"


def test_what_the_engine_cannot_answer_is_refused_before_anything_runs(tmp_path: Path) -> None:
    engine = WordEngine()
    with pytest.raises(UnsupportedTaskError, match="no penalties"):
        answer(write_run(tmp_path / "run", presence_penalty=0.5), tmp_path, engine)
    assert not engine.batches
