"""A run that goes on asks the model that it began with, and says what else of the server changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from assay.cli.gate import gate
from assay.client.preflight import AGREEMENT_PROMPTS
from assay.errors import ServerChangedError
from assay.evaluation import evaluate
from assay.progress import Progress
from assay.types import ModelSpec, Specification, TaskOptions
from tests.gate.conftest import KEY, TASKS, right
from tests.servers.scripted import Fault, ScriptedServer


class Notes(Progress):
    """What is said to whoever watches the run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def noted(self, message: str) -> None:
        self.lines.append(message)


VLLM = {"id": "m", "root": "/models/a", "max_model_len": 4096, "owned_by": "vllm"}
LLAMA = {"id": "m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_params": 1000, "size": 600}}


@contextmanager
def half_answered(
    tmp_path: Path, listed: dict[str, Any], *, probe: bool = False
) -> Iterator[tuple[ScriptedServer, Specification]]:
    """A server and a run some of whose requests failed, so that the same specification goes on with it."""
    with ScriptedServer(answer=right, model_list={"data": [listed]}) as server:
        specification = Specification(
            tasks=("counting",),
            model=ModelSpec(base_url=server.url, model="m", max_attempts=1, concurrency=4),
            options=TaskOptions(include_path=str(TASKS)),
            output_dir=str(tmp_path),
            probe=probe,
        )
        server.faults = (Fault("http_400", indices=frozenset(range(5))),)
        evaluate(specification)
        server.faults = ()
        yield server, specification


@pytest.mark.parametrize(
    ("listed", "change", "words"),
    [
        (VLLM, {"root": "/models/b"}, r"another model as 'm' .*from /models/b, then /models/a.*--fresh"),
        (LLAMA, {"id": "other.gguf"}, r"as other.gguf, then m.gguf"),
        (LLAMA, {"meta": {"n_ctx": 4096, "n_params": 1001, "size": 600}}, r"with parameters 1001, then 1000"),
        (LLAMA, {"meta": {"n_ctx": 4096, "n_params": 1000, "size": 300}}, r"of bytes 300, then 600"),
    ],
)
def test_another_model_under_the_same_name_is_refused(
    tmp_path: Path, listed: dict[str, Any], change: dict[str, Any], words: str
) -> None:
    with half_answered(tmp_path, listed) as (server, specification):
        asked = server.count
        server.model_list = {"data": [{**listed, **change}]}
        with pytest.raises(ServerChangedError, match=words):
            evaluate(specification)
        assert server.count == asked
        evaluate(msgspec.structs.replace(specification, fresh=True))


def test_a_gate_calls_it_invalid(tmp_path: Path) -> None:
    with ScriptedServer(answer=right, model_list={"data": [VLLM]}) as server:
        policy = tmp_path / "gate.toml"
        policy.write_text(
            f'stop_early = false\n[options]\ninclude_path = "{TASKS}"\n[models.main]\nbase_url = "{server.url}"\n'
            f'model = "m"\nmax_attempts = 1\n[[checks]]\ntask = "counting"\nmetric = "{KEY}"\nmin = 0.5\n'
        )

        def judged() -> Result:
            return CliRunner(env={"GITHUB_ACTIONS": "false"}).invoke(gate, [str(policy)], standalone_mode=False)

        server.faults = (Fault("http_400", indices=frozenset(range(5))),)
        assert judged().return_value == 0
        server.model_list = {"data": [{**VLLM, "root": "/models/b"}]}
        again = judged()
        assert again.return_value == 4, again.output
        assert "serves another model" in again.output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_model_len": 2048}, "has a context length of 2048, and 4096 when this run began"),
        ({"owned_by": "sglang"}, "names as the model's owner sglang, and vllm when this run began"),
    ],
)
def test_what_else_changed_is_said_before_the_run_goes_on(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    with half_answered(tmp_path, VLLM) as (server, specification):
        server.model_list = {"data": [{**VLLM, **change}]}
        notes = Notes()
        run = evaluate(specification, notes)
        assert any(words in line for line in notes.lines), notes.lines
        assert run.scores[0].n == 60


def test_other_answers_to_short_prompts_are_said(tmp_path: Path) -> None:
    with half_answered(tmp_path, VLLM, probe=True) as (server, specification):
        notes = Notes()
        server.faults = (Fault("http_400", indices=frozenset(range(5))),)
        evaluate(specification, notes)
        assert not any("short prompts" in line for line in notes.lines)
        server.faults = ()
        server.answer = lambda body: "Lyon" if AGREEMENT_PROMPTS[1] in str(body) else right(body)
        evaluate(specification, notes)
        assert any(
            "answered 1 of 4 short prompts at temperature 0 unlike when this run began" in line for line in notes.lines
        )


def test_an_unchanged_server_is_asked_nothing_more(tmp_path: Path) -> None:
    with half_answered(tmp_path, VLLM) as (server, specification):
        assert server.count == 60
        notes = Notes()
        evaluate(specification, notes)
        assert server.count < 120
        assert not notes.lines
