"""The examples are read and run as their users would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from assay.gate.policy import load_policy, specifications

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_policy_is_one(tmp_path: Path) -> None:
    text = (EXAMPLES / "gate.toml").read_text()
    assert list(specifications(load_policy(EXAMPLES / "gate.toml"))) == ["candidate"]
    shown = tmp_path / "gate.toml"
    shown.write_text(
        text.replace("# [[checks]]\n# task", "[[checks]]\ntask")
        .replace("\n# metric", "\nmetric")
        .replace("\n# baseline", "\nbaseline")
        .replace("\n# margin", "\nmargin")
    )
    run = specifications(load_policy(shown))["candidate"]
    assert [check.margin for check in run.checks] == [None, 0.02]


def test_the_gitlab_job_is_yaml() -> None:
    job = yaml.safe_load((EXAMPLES / "gitlab-ci.yml").read_text())["assay-gate"]
    assert job["artifacts"]["reports"]["junit"] in job["script"][1]


@pytest.mark.parametrize(
    ("verdict", "allow", "code"), [(0, "false", 0), (1, "true", 1), (3, "false", 3), (3, "true", 0), (4, "true", 4)]
)
def test_the_github_action_ends_with_the_verdict(tmp_path: Path, verdict: int, allow: str, code: int) -> None:
    action = yaml.safe_load((EXAMPLES / "github-action" / "action.yml").read_text())
    step = next(step for step in action["runs"]["steps"] if step.get("id") == "gate")
    stand_in = tmp_path / "assay"
    stand_in.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > arguments\nexit {verdict}\n')
    stand_in.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "POLICY": "a policy.toml",
        "BASE_URL": "http://x; touch hacked",
        "MODEL": "",
        "ALLOW_INCONCLUSIVE": allow,
    }
    # GitHub runs `shell: bash` with these options.
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(command, env=environment, cwd=tmp_path, timeout=30)
    assert done.returncode == code
    assert (tmp_path / "output").read_text() == f"exit-code={verdict}\n"
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[:2] == ["gate", "a policy.toml"]
    assert arguments[-2:] == ["--base-url", "http://x; touch hacked"]
    assert not (tmp_path / "hacked").exists()
