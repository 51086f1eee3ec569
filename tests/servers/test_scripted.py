"""The scripted server itself: what other tests rest on."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.servers import scripted
from tests.servers.scripted import Fault, ScriptedServer, number_for, parse_fault


def post(url: str, body: dict[str, Any], path: str = "/v1/chat/completions") -> Any:
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return json.load(reply)


def question(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": str(number)}], "model": "m"}


def test_it_answers_both_endpoints_and_records_what_it_got() -> None:
    with ScriptedServer(answer=lambda body: body["model"].upper()) as server:
        assert post(server.url, question(1))["choices"][0]["message"]["content"] == "M"
        reply = post(server.url, {"prompt": "q", "model": "m"}, "/v1/completions")
        assert reply["choices"][0]["text"] == "M"
        assert [received.path for received in server.requests] == ["/v1/chat/completions", "/v1/completions"]
        assert server.requests[0].body == question(1)
        assert server.answered == [question(1), {"prompt": "q", "model": "m"}]


def test_other_paths_are_not_found() -> None:
    with ScriptedServer() as server, pytest.raises(urllib.error.HTTPError, match="404"):
        post(server.url, question(1), "/chat/completions")


def test_a_fraction_is_of_the_bodies_and_stable() -> None:
    def hit(server: ScriptedServer) -> set[int]:
        found = set()
        for number in range(200):
            try:
                post(server.url, question(number))
            except urllib.error.HTTPError:
                found.add(number)
        return found

    with ScriptedServer(faults=[Fault("http_500", fraction=0.2)]) as server:
        first = hit(server)
        assert 20 <= len(first) <= 60
        assert hit(server) == first


def test_a_passing_fault_passes_for_each_body() -> None:
    with ScriptedServer(faults=[Fault("http_500", first=1)]) as server:
        for number in range(3):
            with pytest.raises(urllib.error.HTTPError):
                post(server.url, question(number))
            assert post(server.url, question(number))


def test_it_comes_back_on_the_same_port() -> None:
    with ScriptedServer() as server:
        url = server.url
        server.stop()
        with pytest.raises(urllib.error.URLError):
            post(url, question(1))
        server.start()
        assert server.url == url
        assert post(url, question(1))


def test_an_unknown_fault_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault 'http_499'"):
        Fault("http_499")


def test_faults_can_be_written_on_the_command_line() -> None:
    assert parse_fault("reset:fraction=0.03:first=2") == Fault("reset", fraction=0.03, first=2)
    assert parse_fault("hang:seconds=5:indices=0,7") == Fault("hang", seconds=5.0, indices=frozenset({0, 7}))


@pytest.mark.parametrize("how", ["module", "path"])
def test_it_runs_as_a_process_of_its_own(how: str, tmp_path: Path) -> None:
    file = Path(scripted.__file__)
    command = ["-m", "tests.servers.scripted"] if how == "module" else [str(file)]
    log = tmp_path / "requests.jsonl"
    process = subprocess.Popen(
        [sys.executable, *command, "--log", str(log)], stdout=subprocess.PIPE, text=True, cwd=file.parents[2]
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert post(url, question(1))["choices"][0]["message"]["content"] == number_for(question(1))
        [line] = log.read_text().splitlines()
        assert json.loads(line)["body"] == question(1)
    finally:
        process.kill()
        process.communicate(timeout=10)
