"""Rerun noise is measured on real reruns, and the margin proposed leaves room for it."""

from __future__ import annotations

import itertools
import json
import random
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from assay.cli.calibrate import calibrate
from assay.gate.calibrate import proposed_margin
from tests.gate.conftest import TASKS
from tests.servers.scripted import ScriptedServer


def noise(folder: Path, flaky: bool) -> dict[str, Any]:
    calls = itertools.count()

    def answer(body: dict[str, Any]) -> str:
        """Right, or where flaky wrong for a tenth of the questions of every run."""
        question = body["messages"][-1]["content"]
        run = next(calls) // 60
        if flaky and random.Random(f"{run} {question}").random() < 0.1:
            return "I cannot say"
        return f"The answer is {sum(int(word) for word in question.split() if word.isdigit())}"

    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        options = [
            "--base-url",
            server.url,
            "--model",
            "scripted",
            "--include-path",
            str(TASKS),
            "--runs",
            "3",
            "--output-dir",
            str(folder),
        ]
        done = CliRunner().invoke(calibrate, ["counting", *options, "--concurrency", "1", "--json"])
        assert done.exit_code == 0, done.output
        assert server.count == 180
    (row,) = json.loads(done.stdout)
    return dict(row)


def test_a_steady_server_flips_nothing(tmp_path: Path) -> None:
    row = noise(tmp_path, flaky=False)
    assert row["values"] == [1.0, 1.0, 1.0]
    assert row["flip_rate"] == 0.0
    assert 0 < row["flip_rate_at_most"] < 0.05
    assert row["margin"] == pytest.approx(proposed_margin(row["flip_rate_at_most"], 60))


def test_a_flaky_server_gets_a_wider_margin(tmp_path: Path) -> None:
    row = noise(tmp_path, flaky=True)
    assert 0.05 < row["flip_rate"] < 0.35
    assert row["flip_rate"] < row["flip_rate_at_most"]
    assert row["margin"] >= 3 * sqrt(row["flip_rate_at_most"] / 60)


def test_one_run_shows_nothing() -> None:
    done = CliRunner().invoke(calibrate, ["t", "--base-url", "http://x", "--model", "m", "--runs", "1"])
    assert done.exit_code == 2


def test_the_margin_is_rounded_up_to_half_points() -> None:
    assert proposed_margin(0.02, 1319) == pytest.approx(0.015)
    assert proposed_margin(0.0, 1319) == pytest.approx(0.005)
