"""Runs tasks by real lm-eval and by Assay on one scripted server, and compares all that both say."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.client.urls import endpoint_url
from assay.evaluation import Evaluation, evaluate
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from assay.types import ModelSpec, Specification, TaskOptions
from tests.servers.echoing import Body, ImaginaryModel
from tests.servers.scripted import ScriptedServer
from tests.tasks.lm_eval_client import lm_eval_client

TASKS = Path(__file__).parent / "differential_tasks"
MAX_LENGTH = 2000


class Scene:
    """One server and what it says, by the question alone."""

    def __init__(self, tokenizer: str, output_dir: Path) -> None:
        self.tokenizer = tokenizer
        self.output_dir = output_dir
        self._asked: Counter[int] = Counter()
        """How often each question was asked that is to be answered differently at times."""
        self.model = ImaginaryModel(HuggingFaceTokenizer(tokenizer))

    def answer(self, body: Body) -> Any:
        """Log-probabilities where they are asked for; else a number, for half of the prompts the one after "+"."""
        if body.get("echo"):
            return self.model.vllm(body)
        prompt: Any = body.get("prompt", body.get("messages"))
        text = self.model.tokenizer.decode(prompt[0]) if isinstance(prompt[0], list) else json.dumps(prompt)
        number = int(text.rpartition("What is ")[2].partition(" ")[0])
        if "Again: " in text and "messages" in body:
            self._asked[number] += 1
            return f" {number * 8 + (self._asked[number] * number) % 3 // 2}"
        return f" {number * 8}" if number % 2 else f" {number}, I think"

    def run_both(self, *tasks: str, endpoint: Any = "chat", tokenizer: bool = False, **options: Any) -> Evaluation:
        """Run `tasks` by both, assert that bodies, results and samples are equal, and return Assay's.

        Args:
            tasks: their names.
            endpoint: which is asked.
            tokenizer: whether prompts are split into tokens on this side.
            options: of :class:`assay.TaskOptions`; or, in ``model``, of :class:`assay.ModelSpec`.
        """
        with ScriptedServer(answer=self.answer, models=["imaginary"]) as server:
            specification = self._specification(server.url, tasks, endpoint, tokenizer=tokenizer, **options)
            theirs = self._by_lm_eval(specification)
            asked = len(server.answered)
            run = evaluate(specification)
            # Before the first log-likelihood two questions try the server out.
            skipped = 2 if any(body.get("echo") for body in server.answered[:asked]) else 0
            expected, got = server.answered[:asked], server.answered[asked + skipped :]
        assert Counter(map(json.dumps, got)) == Counter(map(json.dumps, expected))
        self._compare(run, theirs)
        return run

    def run_assay(self, *tasks: str, server: ScriptedServer | None = None, **options: Any) -> Evaluation:
        """Run `tasks` by Assay alone; `options` may be the specification's or, in ``model``, the model's, too."""
        with contextlib.ExitStack() as stack:
            if server is None:
                server = stack.enter_context(ScriptedServer(answer=self.answer, models=["imaginary"]))
            return evaluate(self._specification(server.url, tasks, **options))

    def _specification(
        self, url: str, tasks: tuple[str, ...], endpoint: Any = "chat", *, tokenizer: bool = False, **options: Any
    ) -> Specification:
        of_model = options.pop("model", {})
        of_run = {name: options.pop(name) for name in Specification.__struct_fields__ if name in options}
        fields = {"concurrency": 4, "max_length": MAX_LENGTH, "tokenizer": self.tokenizer if tokenizer else None}
        model = ModelSpec(base_url=url, model="imaginary", endpoint=endpoint, **fields | of_model)
        given = TaskOptions(include_path=str(TASKS), **options)
        return Specification(tasks=tasks, model=model, options=given, output_dir=str(self.output_dir), **of_run)

    def _by_lm_eval(self, specification: Specification) -> dict[str, Any]:
        from lm_eval.evaluator import simple_evaluate
        from lm_eval.tasks import TaskManager

        model, options = specification.model, specification.options
        # More than one at once, for then lm-eval adds no stop sequence of the tokenizer's.
        settings = {"model": "imaginary", "num_concurrent": min(model.concurrency, 2), "max_length": MAX_LENGTH}
        results: dict[str, Any] = simple_evaluate(
            model=self._client(model, settings),
            tasks=list(specification.tasks),
            task_manager=TaskManager(include_defaults=False, include_path=options.include_path),
            num_fewshot=options.num_fewshot,
            limit=options.limit,
            samples=None if options.samples is None else {name: list(ids) for name, ids in options.samples.items()},
            gen_kwargs=options.gen_kwargs or None,
            system_instruction=options.system_instruction,
            apply_chat_template=model.endpoint == "chat" or options.apply_chat_template,
            fewshot_as_multiturn=options.fewshot_as_multiturn,
            random_seed=options.random_seed,
            numpy_random_seed=options.numpy_seed,
            torch_random_seed=options.torch_seed,
            fewshot_random_seed=options.fewshot_seed,
            bootstrap_iters=1000,
        )
        return results

    def _client(self, model: ModelSpec, settings: dict[str, Any]) -> Any:
        pytest.importorskip("tenacity")
        from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

        if model.tokenizer is not None:
            return lm_eval_client(model.base_url, model.tokenizer, **settings)
        url = endpoint_url(model.base_url, model.endpoint)
        if model.endpoint == "chat":
            return LocalChatCompletion(base_url=url, **settings)
        return LocalCompletionsAPI(base_url=url, tokenizer_backend=None, **settings)

    def _compare(self, run: Evaluation, theirs: dict[str, Any]) -> None:
        from lm_eval.utils import handle_non_serializable, sanitize_list

        assert run.failures == ()
        for section in ("results", "groups", "group_subtasks", "versions", "n-shot", "n-samples", "higher_is_better"):
            expected = json.dumps(theirs.get(section), default=handle_non_serializable)
            assert json.dumps(run.results.get(section)) == expected, section  # as text, for NaN is not equal to itself
        for task, lines in theirs["samples"].items():
            for got, line in zip(sample_lines(run, task), lines, strict=True):
                line |= {field: sanitize_list(line[field]) for field in ("resps", "filtered_resps")}
                expected = json.loads(json.dumps(line, default=handle_non_serializable))
                # lm-eval changes these two when it writes them; the recorded runs show how.
                del expected["arguments"], expected["target"]
                assert json.dumps({field: got[field] for field in expected}) == json.dumps(expected)


def sample_lines(run: Evaluation, task: str) -> list[dict[str, Any]]:
    """What a run's samples file of one task says."""
    stamp = run.results_file.stem.removeprefix("results_")
    file = run.results_file.with_name(f"samples_{task}_{stamp}.jsonl")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
