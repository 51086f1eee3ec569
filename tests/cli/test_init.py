"""From a server to a policy and a CI file that a healthy server passes, and a broken one does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.cli import main
from assay.gate.ci_files import CI, PLACES, ci_file, system_of
from assay.gate.policy import load_policy
from tests.gate.conftest import TASKS, right, wrong
from tests.servers.scripted import ScriptedServer


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def assay(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def init(url: str, *options: str) -> int:
    return assay("init", "--base-url", url, "--task", "counting", "--include-path", str(TASKS), *options)


def test_a_first_policy_is_passed_by_a_healthy_server_and_by_no_other(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def mostly_right(body: dict[str, Any]) -> str:
        return wrong(body) if "1" in right(body) else right(body)

    with ScriptedServer(answer=mostly_right, models=["scripted"]) as server:
        assert init(server.url) == 0
        out, err = capfd.readouterr()
        assert out.split() == ["gate.toml", ".github/workflows/assay.yml"]
        assert "assay gate gate.toml --explain" in err
        (check,) = load_policy("gate.toml").checks
        assert check.metric == "exact_match,get-answer"
        assert check.min is not None
        assert 0 < check.min < 1
        assert load_policy("gate.toml").options.limit is None
        assert assay("gate", "gate.toml") == 0
    with ScriptedServer(answer=wrong, models=["scripted"]) as broken:
        assert assay("gate", "gate.toml", "--base-url", broken.url) == 1


def test_nothing_is_overwritten_and_nothing_asked_before_that_is_seen(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Path("gate.toml").write_text("mine")
    with ScriptedServer(answer=right, models=["scripted"]) as server:
        assert init(server.url) == 2
        assert server.count == 0
    assert "gate.toml is there already" in capfd.readouterr().err
    assert Path("gate.toml").read_text() == "mine"


def test_a_model_with_nothing_to_lose_gets_no_policy(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(answer=wrong, models=["scripted"]) as server:
        assert init(server.url, "--ci", "none") == 4
    assert "there is nothing to guard" in capfd.readouterr().err
    assert not Path("gate.toml").exists()


def test_no_server_is_one_line(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert init("http://127.0.0.1:1", "--model", "m", "--give-up-after", "0.2") == 4
    assert len(capfd.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("system", CI)
def test_the_ci_files_are_yaml_that_run_the_gate(system: CI) -> None:
    text = ci_file(system, "policies/gate.toml")
    assert yaml.safe_load(text)
    assert "assay gate policies/gate.toml --fresh --base-url" in text


def test_the_system_is_the_one_that_is_there(here: Path) -> None:
    assert system_of(here) is CI.GITHUB
    (here / ".buildkite").mkdir()
    assert system_of(here) is CI.BUILDKITE
    (here / ".gitlab-ci.yml").touch()
    assert system_of(here) is CI.GITLAB
    assert set(PLACES) == set(CI)
