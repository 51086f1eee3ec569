"""``assay probe`` as a person and a script meet it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.cli import main
from assay.client.probe import TITLES, Capability
from tests.servers.scripted import Fault, ScriptedServer, reply_with


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["probe", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def test_a_table_with_a_line_for_each_capability(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(models=[("tiny\x1b[2J", 300)]) as server:
        code, out, err = run(capsys, "--base-url", server.url)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    first, _, *rows, _, last = [line.rstrip() for line in out.splitlines()]
    assert first == rf"tiny\x1b[2J at {server.url}: an unknown server"
    assert len(rows) == len(Capability)
    for row, capability in zip(rows, Capability, strict=True):
        assert row.startswith(TITLES[capability])
        assert row.removeprefix(TITLES[capability]).split()[0] in ("yes", "no", "unknown")
    assert last.endswith(" s")


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(models=[("tiny", 300)]) as server:
        code, out, _ = run(capsys, "--base-url", f"{server.url}/v1/", "--json")
    document: dict[str, Any] = json.loads(out)
    assert code == 0
    assert document["url"] == server.url
    assert document["max_length"] == 300
    assert list(document["findings"]) == list(Capability)
    assert document["findings"]["chat"]["seen"] == "yes"


def test_several_servers(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as one, ScriptedServer() as other:
        both = ["--base-url", one.url, "--base-url", other.url, "--quick"]
        code, out, _ = run(capsys, *both)
        assert code == 0
        assert [url for url in (one.url, other.url) if f"scripted-model at {url}:" in out] == [one.url, other.url]
        code, out, _ = run(capsys, *both, "--json")
        assert [report["url"] for report in json.loads(out)] == [one.url, other.url]
        code, out, err = run(capsys, *both, "--base-url", "http://127.0.0.1:9")
        assert (code, out.count("requests, ")) == (4, 2)
        assert "nothing answers at http://127.0.0.1:9" in err


def test_quick(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer() as server:
        code, out, _ = run(capsys, "--base-url", server.url, "--quick", "--model", "m")
        assert sum("completions" in request.path for request in server.probes) == 6
    assert code == 0
    assert TITLES[Capability.SYSTEM_PROMPT] in out
    assert TITLES[Capability.STOP] not in out


def test_nothing_there_is_one_line_and_exit_code_4(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--base-url", "http://127.0.0.1:9")
    assert (code, out) == (4, "")
    assert err.startswith("assay: nothing answers at http://127.0.0.1:9")
    assert err.count("\n") == 1
    code, out, _ = run(capsys, "--base-url", "http://127.0.0.1:9", "--json")
    assert code == 4
    assert json.loads(out)["findings"]["reachable"]["seen"] == "no"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--base-url", "127.0.0.1:9"], "http://"),
        (["--base-url", "http://127.0.0.1:9", "--seconds", "0"], "--seconds"),
        ([], "--base-url"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_key_comes_from_the_environment_and_is_shown_nowhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("MY_KEY", key)
    with ScriptedServer(api_key=key) as server:
        _, out, _ = run(capsys, "--base-url", server.url, "--json", "--api-key-env", "MY_KEY")
        assert json.loads(out)["findings"]["chat"]["seen"] == "yes"
    with ScriptedServer(faults=[Fault("http_401_echo")]) as server:
        _, refused, err = run(capsys, "--base-url", server.url, "--api-key-env", "MY_KEY")
    assert key not in out + refused + err


@pytest.mark.parametrize("arguments", [["--model", "scripted-model"], ["--model", "scripted-model", "--quick"]])
def test_a_server_that_refuses_the_key_of_every_request(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    with ScriptedServer(api_key="another") as server:
        code, out, err = run(capsys, "--base-url", server.url, *arguments)
        assert f"{server.url} refuses the key (HTTP 401" in err
    assert (code, out) == (4, "")
    assert "check the key: it is read from" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(401, 4, "refuses the key (HTTP 401"), (403, 2, "HTTP 403"), (500, 2, "HTTP 500"), (404, 2, "HTTP 404")],
)
def test_a_list_of_models_that_is_refused_is_said_with_its_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, status: int, code: int, words: str
) -> None:
    with ScriptedServer() as server:
        server.refuse_lookups = status
        ended, out, err = run(capsys, "--base-url", server.url)
    assert (ended, out) == (code, "")
    assert words in err
    assert ("--model" in err) == (code == 2)


def test_a_server_that_refuses_every_request_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(faults=[Fault("http_403")]) as server:
        code, out, err = run(capsys, "--base-url", server.url)
    assert (code, out) == (4, "")
    assert "refuses every request (HTTP 403" in err


@pytest.mark.parametrize("fault", ["http_429", "http_503"])
def test_a_server_that_answers_nothing_for_now_is_not_said_to_do_so_for_good(
    capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    with ScriptedServer(faults=[Fault(fault)]) as server:
        code, _, err = run(capsys, "--base-url", server.url, "--quick")
    assert code == 4
    assert "answers no request (HTTP " in err
    assert "ask again" in err
    assert "cannot help" not in err


@pytest.mark.parametrize(("said", "is_another"), [("another", True), ("m@main", False), ("m", False)])
def test_an_answer_in_another_models_name_is_remarked(
    capsys: pytest.CaptureFixture[str], said: str, is_another: bool
) -> None:
    with ScriptedServer(answer=lambda body: {**reply_with("8", body), "model": said}) as server:
        code, out, _ = run(capsys, "--base-url", server.url, "--quick", "--model", "m")
    assert code == 0
    assert ("asked for 'm', but an answer names 'another'" in out) == is_another
