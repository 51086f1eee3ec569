from __future__ import annotations

import os
import signal

import pytest

from assay.helm.scoring import pool as pool_module
from assay.helm.scoring.pool import ScoringPool
from assay.helm.scoring.scorer import AnswerTexts, Scorer

NAMES = ["exact_match", "f1_score", "absolute_value_difference"]
BATCHES = [
    [AnswerTexts((f"gold {batch}", "other"), (f"gold {index}", "other \ud800", "9" * 30)) for index in range(4)]
    for batch in range(6)
]


@pytest.fixture(autouse=True)
def start_processes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_SECONDS_BEFORE_WORKERS", -1.0)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)


def test_processes_change_no_value() -> None:
    scorer = Scorer(NAMES, 2)
    expected = [[scorer.score(answer) for answer in batch] for batch in BATCHES]
    pool = ScoringPool(Scorer(NAMES, 2), parallelism=2)
    try:
        scores = [future.result() for future in [pool.submit(batch) for batch in BATCHES]]
    finally:
        pool.close()
    assert scores == expected
    assert [[list(map(type, row)) for row in batch] for batch in scores] == [
        [list(map(type, row)) for row in batch] for batch in expected
    ]


def test_work_reaches_other_processes() -> None:
    pool = ScoringPool(Scorer(["exact_match"], 1), parallelism=2)
    try:
        assert pool.submit([AnswerTexts(("a",), ("a",))]).result() == [[1]]
        assert [worker.poll() for worker in pool._workers] == [None]
    finally:
        pool.close()


def test_a_killed_process_loses_no_batch() -> None:
    pool = ScoringPool(Scorer(["exact_match"], 1), parallelism=2)
    try:
        for _ in range(3):
            pool.submit([AnswerTexts(("a",), ("a",))]).result()
        for worker in pool._workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait()
        assert [pool.submit([AnswerTexts(("a",), ("b",))]).result() for _ in range(4)] == [[[0]]] * 4
    finally:
        pool.close()


def test_one_process_scores_here() -> None:
    pool = ScoringPool(Scorer(["exact_match"], 1), parallelism=1)
    assert pool.submit([AnswerTexts(("a",), ("a",))]).done()
    assert not pool._workers
    pool.close()
