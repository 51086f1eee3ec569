"""The examples of the page on Python run one after another, as its reader would run them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tests.gate.conftest import KEY, TASKS, right
from tests.helm.running.runs import number_of, write_run
from tests.servers.scripted import ScriptedServer

PAGE = Path(__file__).parents[1] / "docs" / "from-python.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
POLICY = """
[options]
include_path = "{tasks}"
[models.main]
base_url = "{url}"
model = "my-model"
[[checks]]
task = "counting"
metric = "{key}"
min = 0.8
"""


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the page's reader has: a server; in the working directory a policy, and a run of HELM's."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs/v1/gsm:model=openai_gpt2")

    def answer(body: dict[str, Any]) -> str:
        return f"a{number_of(body)}" if "prompt" in body else right(body)

    with ScriptedServer(answer=answer, models=["my-model"]) as server:
        (tmp_path / "gate.toml").write_text(POLICY.format(tasks=TASKS, url=server.url, key=KEY))
        yield {"url": server.url}


def as_run_here(code: str, url: str) -> str:
    """The page's server, task and metric are other ones here."""
    return (
        code.replace("http://localhost:8000", url)
        .replace("gsm8k_cot", "counting")
        .replace("exact_match,strict-match", KEY)
        .replace("TaskOptions(", f"TaskOptions(include_path={str(TASKS)!r}, ")
    )


def test_every_example_runs(namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    variables: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        code = compile(as_run_here(block, namespace["url"]), f"{PAGE.name}, block {number}", "exec")
        exec(code, variables)
    said = capsys.readouterr().out
    assert f"counting {KEY} 1.0 Interval(low=" in said
    assert "no verdict: nothing answers" in said
    assert "no harness cause found" in said
    assert "exact_match 1.0" in said


def test_every_function_of_the_page_is_there() -> None:

    names = re.findall(r"`(?:await )?assay\.([\w.]+)\(", PAGE.read_text(encoding="utf-8"))
    assert len(names) > 3
    for name in names:
        module, _, function = f"assay.{name}".rpartition(".")
        thing: Any = getattr(importlib.import_module(module), function)
        assert callable(thing), name


def test_what_is_not_there_is_said_alike_by_all_functions() -> None:
    import assay

    assert assay.probe("http://127.0.0.1:1").is_reachable is False
    with pytest.raises(assay.SpecificationError, match="seconds is 0"):
        assay.probe("http://127.0.0.1:1", seconds=0)
    with pytest.raises(assay.FileFormatError, match="there is no run nowhere"):
        assay.compare("nowhere", "nowhere")
    for function in (assay.triage, assay.report, assay.score):
        with pytest.raises(assay.FileFormatError, match="there is no run nowhere"):
            function("nowhere")
