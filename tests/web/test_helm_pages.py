"""HELM's own website shows a run that Assay wrote: make helm-web."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.helm.tokenization import EncoderService
from tests.helm.conftest import WordTokenizer
from tests.helm.suites import RUN, SUITE, helm_python, write_summarized_suite

pytestmark = pytest.mark.web


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a helm-server with one run."""
    folder = tmp_path_factory.mktemp("helm")
    write_summarized_suite(folder, EncoderService(WordTokenizer()))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [helm_python(), "-m", "helm.benchmark.server", "-p", str(port), "-o", str(folder), "--suite", SUITE]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        await_answer(f"{address}/config.js", server)
        yield address
    finally:
        server.kill()
        server.wait()


def await_answer(address: str, server: subprocess.Popen[bytes], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, TimeoutError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.2)
    pytest.fail(f"helm-server does not answer; its exit code is {server.poll()}")


@pytest.mark.parametrize(
    ("page", "address", "texts"),
    [
        ("group", "#/groups/a_group", ["A group", "m/m", "0.75"]),
        ("run", f"#/runs/{RUN}", ["question 3", "yes"]),
    ],
)
def test_the_numbers_are_on_the_page(
    site: str,
    browser: Any,
    tmp_path: Path,
    page: str,
    address: str,
    texts: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    opened = browser.new_page(viewport={"width": 1400, "height": 900})
    try:
        opened.goto(f"{site}/{address}")
        for text in texts:
            opened.get_by_text(text, exact=False).first.wait_for(timeout=60_000)
        picture = tmp_path / f"{page}.png"
        opened.screenshot(path=picture, full_page=True)
    finally:
        opened.close()
    with capsys.disabled():
        print(f"\nscreenshot: {picture}")
