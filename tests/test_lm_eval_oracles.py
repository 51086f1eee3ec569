"""Replays recorded runs of the real lm-eval: same requests, same results, same samples, field by field."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from assay.evaluation import Evaluation, evaluate
from assay.tasks.encoding import PromptEncoder
from assay.tasks.gen_kwargs import parse_gen_kwargs
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from assay.types import ModelSpec, Specification, TaskOptions, TokenSpan
from tests.lm_eval_files import SECTIONS, RunFiles, comparable_configs, read_lines
from tests.servers.echoing import ImaginaryModel
from tests.servers.scripted import ScriptedServer

GENERATIVE = (
    "chat_bbh_cot_fewshot",
    "chat_gsm8k",
    "chat_gsm8k_cot",
    "chat_gsm8k_cot_llama",
    "chat_gsm8k_genkwargs",
    "chat_leaderboard_ifeval",
    "chat_mmlu_pro",
    "compl_bbh_cot_fewshot",
    "compl_gsm8k",
    "compl_gsm8k_cot",
)
LOGLIKELIHOOD = ("loglik_arc_challenge", "loglik_hellaswag", "loglik_mmlu", "loglik_winogrande")

QUESTIONS_THAT_TRY_THE_SERVER = 2
"""Before a run that needs log-likelihoods; lm-eval asks none."""


class Recording:
    """One recorded run of lm-eval."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        words = shlex.split((folder / "command.txt").read_text())
        self.options = {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
        files = RunFiles.read(next(folder.glob("results_*.json")))
        self.results, self.samples = files.results, files.samples
        self.bodies = [line["body"] for line in read_lines(folder / "requests.jsonl")]

        self.tokenizer: str | None = None
        if "tokenizer=tokenizer" in self.options["--model_args"]:
            self.tokenizer = str(folder.parent / "tokenizer")

    def specification(self, base_url: str, data_dir: Path, output_dir: Path) -> Specification:
        fewshot = self.options.get("--num_fewshot")
        return Specification(
            tasks=(self.options["--tasks"],),
            model=ModelSpec(
                base_url=base_url,
                model="fake-model",
                endpoint="chat" if "chat" in self.options["--model"] else "completions",
                concurrency=4,
                tokenizer=self.tokenizer,
            ),
            options=TaskOptions(
                limit=float(self.options["--limit"]),
                num_fewshot=int(fewshot) if fewshot else None,
                gen_kwargs=parse_gen_kwargs(self.options.get("--gen_kwargs", "")),
                data_dir=str(data_dir),
            ),
            output_dir=str(output_dir),
        )

    def answer(self, body: dict[str, Any]) -> Any:
        """What the recorded server said to this body."""
        answer = self._answers.get(json.dumps(body.get("messages", body.get("prompt"))))
        # The question that tries the server out was not recorded.
        return self._imaginary_model.vllm(body) if answer is None else answer

    @cached_property
    def _imaginary_model(self) -> ImaginaryModel:
        assert self.tokenizer is not None
        return ImaginaryModel(HuggingFaceTokenizer(self.tokenizer))

    @cached_property
    def _answers(self) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for line in (line for lines in self.samples.values() for line in lines):
            for number, responses in enumerate(line["resps"]):
                arguments = line["arguments"][f"gen_args_{number}"]
                if self.tokenizer is None:
                    prompt = arguments["arg_0"]
                    answers[json.dumps(json.loads(prompt[0]) if isinstance(prompt, list) else prompt)] = responses[0]
                else:
                    prompt = self._encoder.pair(arguments["arg_0"], arguments["arg_1"])
                    answers[json.dumps([prompt.ids])] = _echo(prompt.span, *responses[0])
        return answers

    @cached_property
    def _encoder(self) -> PromptEncoder:
        assert self.tokenizer is not None
        return PromptEncoder(HuggingFaceTokenizer(self.tokenizer), max_length=None)


def _echo(span: TokenSpan, logprob: str, is_greedy: str) -> dict[str, Any]:
    """A reply whose part asked about has this log-probability: on its first token, so that no sum is rounded."""
    values: list[float | None] = [None, *[0.0] * span.stop]
    values[span.start] = float(logprob)
    tops = [None if value is None else {"x": value} for value in values]
    tops[span.start] = {"x": float(logprob), **({} if is_greedy == "True" else {"y": 1.0})}
    logprobs = {"tokens": ["x"] * len(values), "token_logprobs": values, "top_logprobs": tops}
    return {"choices": [{"index": 0, "text": "", "finish_reason": "length", "logprobs": logprobs}]}


class Replay:
    """The same run by Assay, against a server that says what the recorded one said."""

    def __init__(self, recording: Recording, data_dir: Path, output_dir: Path) -> None:
        with ScriptedServer(answer=recording.answer, models=["fake-model"]) as server:
            self.evaluation: Evaluation = evaluate(recording.specification(server.url, data_dir, output_dir))
            questions = server.requests[0 if recording.tokenizer is None else QUESTIONS_THAT_TRY_THE_SERVER :]
            self.bodies = [request.body for request in questions if request.path.endswith("completions")]
        files = RunFiles.read(self.evaluation.results_file)
        self.results, self.samples = files.results, files.samples


@pytest.fixture(scope="module", params=GENERATIVE + LOGLIKELIHOOD)
def recording(request: pytest.FixtureRequest, oracles_dir: Path) -> Recording:
    return Recording(oracles_dir / "lm_eval" / str(request.param))


@pytest.fixture(scope="module")
def replay(recording: Recording, data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Replay:
    return Replay(recording, data_dir, tmp_path_factory.mktemp("replay"))


def test_the_server_sees_the_same_bodies(recording: Recording, replay: Replay) -> None:
    assert Counter(map(json.dumps, replay.bodies)) == Counter(map(json.dumps, recording.bodies))


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_of_the_results_is_equal(recording: Recording, replay: Replay, section: str) -> None:
    assert replay.results.get(section, "absent") == recording.results.get(section, "absent")


def test_keys_and_their_order_are_equal(recording: Recording, replay: Replay) -> None:
    assert list(replay.results) == [*recording.results, "assay"]
    assert list(replay.results["config"]) == list(recording.results["config"])
    for name, entry in recording.results["results"].items():
        assert list(replay.results["results"][name]) == list(entry)


def test_task_configurations_are_equal(recording: Recording, replay: Replay) -> None:
    assert comparable_configs(replay.results["configs"]) == comparable_configs(recording.results["configs"])


def test_every_sample_is_equal(recording: Recording, replay: Replay) -> None:
    for task, expected in recording.samples.items():
        got = replay.samples[task]
        assert [list(line) for line in got] == [list(line) for line in expected], task
        assert got == expected, task


def test_nothing_failed(replay: Replay) -> None:
    assert replay.evaluation.failures == ()
