"""Whole runs over several replicas: same results, nothing asked twice, odd ones reported, unlike ones refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.client.preflight import AGREEMENT_PROMPTS
from assay.errors import ModelNotServedError, ReplicasDifferError, ServerUnreachableError
from assay.evaluation import Evaluation, evaluate
from assay.journal import records
from assay.journal.records import Header, ResponseRecord
from assay.progress import Progress
from assay.types import Answer, ModelSpec, Specification, TaskOptions
from tests.evaluation.test_flow import TASKS, answer, samples
from tests.servers.scripted import NEVER, ScriptedServer

NAMED = [("scripted", 4096)]


def reply(body: dict[str, Any]) -> str:
    """Right for two questions in three, and the same words for each sentinel everywhere."""
    said = body["messages"][-1]["content"]
    return "as usual" if said in AGREEMENT_PROMPTS else answer(body)


def questions(server: ScriptedServer) -> list[str]:
    """What the server was asked, but for the sentinels."""
    said = [json.dumps(request.body) for request in server.requests]
    return [body for body in said if not any(json.dumps(prompt) in body for prompt in AGREEMENT_PROMPTS)]


def answered(servers: list[ScriptedServer]) -> Counter[str]:
    bodies = [json.dumps(body) for server in servers for body in server.answered]
    return Counter(body for body in bodies if not any(json.dumps(prompt) in body for prompt in AGREEMENT_PROMPTS))


@pytest.fixture
def servers() -> Iterator[list[ScriptedServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(ScriptedServer(answer=reply, models=NAMED, latency=0.002)) for _ in range(3)]


@pytest.fixture
def nowhere() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"


def specification(output_dir: Path, *urls: str, **model: Any) -> Specification:
    return Specification(
        tasks=("counting", "naming"),
        model=ModelSpec(
            base_url=urls[0],
            replicas=urls[1:],
            **{"model": "scripted", "concurrency": 8, "give_up_after": 1.5, **model},
        ),
        options=TaskOptions(include_path=str(TASKS)),
        output_dir=str(output_dir),
    )


def scores(evaluation: Evaluation) -> Any:
    """What must not depend on the endpoints."""
    kept = {key: evaluation.results[key] for key in ("results", "n-samples", "versions", "task_hashes")}
    return kept, evaluation.results["assay"]["scores"], evaluation.failures, samples(evaluation)


class Listener(Progress):
    def __init__(self) -> None:
        self.remarks: list[str] = []

    def noted(self, remark: str) -> None:
        self.remarks.append(remark)


def test_the_number_of_endpoints_changes_no_result(servers: list[ScriptedServer], tmp_path: Path) -> None:
    alone = evaluate(specification(tmp_path / "alone", servers[0].url))
    listener = Listener()
    three = evaluate(specification(tmp_path / "three", *(server.url for server in servers)), listener)
    assert scores(alone) == scores(three)
    assert listener.remarks == []
    assert "endpoints" not in alone.results["assay"]
    endpoints = three.results["assay"]["endpoints"]
    assert [one["url"] for one in endpoints] == [server.url for server in servers]
    assert sum(one["answers"] for one in endpoints) == 120
    assert sum(one["share"] for one in endpoints) == pytest.approx(1.0)
    assert all(one["answers"] > 10 for one in endpoints)
    assert {json.dumps(one["short_prompts"]) for one in endpoints} == {'{"answered": 4, "differing": 0}'}
    given = [record.response for record in records(three.journal) if isinstance(record, ResponseRecord)]
    by_name = Counter(one.endpoint for one in given if isinstance(one, Answer))
    assert by_name == {one["url"]: one["answers"] for one in endpoints}


def test_a_dead_one_of_three_changes_no_result(servers: list[ScriptedServer], nowhere: str, tmp_path: Path) -> None:
    alone = evaluate(specification(tmp_path / "alone", servers[0].url))
    listener = Listener()
    three = evaluate(specification(tmp_path / "three", nowhere, *(one.url for one in servers[:2])), listener)
    assert scores(alone) == scores(three)
    assert len(listener.remarks) == 1
    assert listener.remarks[0].startswith(f"{nowhere} is set aside: nothing answers")
    dead = three.results["assay"]["endpoints"][0]
    assert (dead["answers"], dead["requests"], dead["times_set_aside"]) == (0, 0, 1)


def test_one_whose_answers_differ_is_reported(servers: list[ScriptedServer], tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda _: "garbage", models=NAMED) as odd:
        listener = Listener()
        evaluation = evaluate(specification(tmp_path, servers[0].url, odd.url, servers[1].url), listener)
    (remark,) = listener.remarks
    assert remark.startswith(f"{odd.url} answered 4 of 4 short prompts at temperature 0 unlike the other endpoints")
    by_url = {one["url"]: one["short_prompts"]["differing"] for one in evaluation.results["assay"]["endpoints"]}
    assert by_url == {servers[0].url: 0, odd.url: 4, servers[1].url: 0}


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["other"], "{a} serves 'scripted', but {b} serves 'other'"),
        ([("scripted", 2048)], "{a} serves a context length of 4096, but {b} 2048"),
    ],
)
def test_unlike_ones_are_refused(servers: list[ScriptedServer], tmp_path: Path, models: Any, message: str) -> None:
    with ScriptedServer(answer=reply, models=models) as other, pytest.raises(ReplicasDifferError) as refused:
        evaluate(specification(tmp_path, servers[0].url, other.url))
    assert str(refused.value).startswith(message.format(a=servers[0].url, b=other.url))
    assert servers[0].count == 0


def test_llama_cpp_takes_any_name_but_not_any_model(tmp_path: Path) -> None:
    def listing(name: str) -> Any:
        return {"data": [{"id": name, "owned_by": "llamacpp", "meta": {"n_ctx": 2048}}]}

    with (
        ScriptedServer(model_list=listing("a.gguf")) as one,
        ScriptedServer(model_list=listing("b.gguf")) as other,
        pytest.raises(ReplicasDifferError, match=r"serves the model 'a.gguf', but .* 'b.gguf'"),
    ):
        evaluate(specification(tmp_path, one.url, other.url))


def test_a_model_that_none_serves(servers: list[ScriptedServer], tmp_path: Path) -> None:
    with pytest.raises(ModelNotServedError, match="does not serve 'missing'; it serves 'scripted'"):
        evaluate(specification(tmp_path, *(server.url for server in servers), model="missing"))


def test_none_there(nowhere: str, tmp_path: Path) -> None:
    with pytest.raises(
        ServerUnreachableError, match=rf"nothing answers at {nowhere} .*; nor is any of 1 other endpoint"
    ):
        evaluate(specification(tmp_path, nowhere, f"{nowhere}/other"))


def test_one_that_dies_in_mid_run_and_comes_back(servers: list[ScriptedServer], tmp_path: Path) -> None:
    alone = evaluate(specification(tmp_path / "alone", servers[2].url))
    mortal, other = servers[:2]
    before: list[int] = []
    listener = Listener()

    def is_back() -> bool:
        return bool(before) and len(questions(mortal)) > before[0]

    # The run must not end before the server is back.
    mortal.latency = other.latency = lambda body: 0.0 if body["max_tokens"] == 16 or is_back() else 0.3

    def outage() -> None:
        while len(questions(mortal)) < 5:
            time.sleep(0.002)
        mortal.stop()
        while not any("is set aside" in line for line in listener.remarks):
            time.sleep(0.002)
        before.append(len(questions(mortal)))
        mortal.start()

    thread = threading.Thread(target=outage, daemon=True)
    thread.start()
    both = evaluate(
        specification(tmp_path / "both", mortal.url, other.url, give_up_after=60.0, max_attempts=2), listener
    )
    thread.join()
    assert scores(both) == scores(alone)
    assert len(questions(mortal)) > before[0]
    assert both.results["assay"]["endpoints"][0]["times_set_aside"] >= 1


def test_when_all_die_the_run_ends_and_goes_on_later(servers: list[ScriptedServer], tmp_path: Path) -> None:
    pair = servers[:2]

    def kill() -> None:
        while sum(len(questions(server)) for server in pair) < 30:
            time.sleep(0.002)
        for server in pair:
            server.stop()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    with pytest.raises(ServerUnreachableError, match=rf"at any of {pair[0].url}, {pair[1].url} .*run the same command"):
        evaluate(specification(tmp_path, *(server.url for server in pair)))
    thread.join()
    for server in pair:
        server.start()
    evaluation = evaluate(specification(tmp_path, *(server.url for server in pair)))
    assert evaluation.failures == ()
    assert sum(one["answers"] for one in evaluation.results["assay"]["endpoints"]) == 120


def test_one_that_returns_with_another_model_stays_aside(
    servers: list[ScriptedServer], nowhere: str, tmp_path: Path
) -> None:
    port = int(nowhere.rpartition(":")[2])
    listener = Listener()

    def is_seen() -> bool:
        return any("stays aside" in line for line in listener.remarks)

    # The run must not end before the other has been looked at.
    servers[0].latency = lambda body: 0.0 if body["max_tokens"] == 16 or is_seen() else 0.3

    def arrive() -> None:
        while not questions(servers[0]):
            time.sleep(0.002)
        late.start()

    late = ScriptedServer(answer=lambda _: "garbage", models=["another"], port=port)
    with late:
        late.stop()
        thread = threading.Thread(target=arrive, daemon=True)
        thread.start()
        evaluation = evaluate(specification(tmp_path, servers[0].url, late.url), listener)
        thread.join()
        assert late.count == 0
    assert any(line.startswith(f"{late.url} stays aside: ") and "'another'" in line for line in listener.remarks)
    assert evaluation.results["assay"]["endpoints"][1]["answers"] == 0


# --- which journal is whose -----------------------------------------------------------------------------------------


def interrupted(output_dir: Path, servers: list[ScriptedServer], *urls: str, after: int) -> None:
    """Kill a run of these endpoints with SIGKILL when they have given so many answers more."""
    program = (
        "import sys, msgspec\n"
        "from assay.evaluation import evaluate\n"
        "from assay.types import Specification\n"
        "evaluate(msgspec.json.decode(sys.argv[1], type=Specification))\n"
    )
    spec = msgspec.json.encode(specification(output_dir, *urls)).decode()
    until = answered(servers).total() + after
    for server in servers:  # so that the run is killed while answers come, and cannot end before
        server.latency = lambda _: 0.01 if answered(servers).total() < until + 8 else NEVER
    child = subprocess.Popen(
        [sys.executable, "-c", program, spec], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 60
    while answered(servers).total() < until:
        assert child.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the run did not get going"
        time.sleep(0.002)
    os.kill(child.pid, signal.SIGKILL)
    child.wait(timeout=30)
    for server in servers:
        server.latency = 0.0


def test_kill_9_and_resumption_with_other_replicas(servers: list[ScriptedServer], tmp_path: Path) -> None:
    """One replica is added, then the first one is lost, and then only that which came last is left."""
    a, b, c = (server.url for server in servers)
    whole = evaluate(specification(tmp_path / "whole", a))
    for server in servers:
        server.answered.clear()
    interrupted(tmp_path / "run", servers, a, after=20)
    interrupted(tmp_path / "run", servers, a, b, after=20)
    interrupted(tmp_path / "run", servers, c, b, after=20)
    evaluation = evaluate(specification(tmp_path / "run", c))
    assert scores(evaluation) == scores(whole)
    (journal,) = (tmp_path / "run" / "scripted" / "journal").glob("*.journal")
    assert sum(isinstance(record, Header) for record in records(journal)) == 4
    kept = Counter(
        record.key
        for record in records(journal)
        if isinstance(record, ResponseRecord) and isinstance(record.response, Answer)
    )
    assert len(kept) == 120
    # Only what was under way when a process was killed is asked again, and no answer in the journal ever is.
    assert set(kept.values()) == {1}
    assert answered(servers).total() <= 120 + 3 * 8


def test_another_single_server_is_another_run(servers: list[ScriptedServer], tmp_path: Path) -> None:
    interrupted(tmp_path, servers, servers[0].url, after=20)
    evaluate(specification(tmp_path, servers[1].url))
    assert len(questions(servers[1])) == 120
    evaluate(specification(tmp_path, servers[1].url, servers[2].url))
    assert len(list((tmp_path / "scripted" / "journal").glob("*.journal"))) == 3
