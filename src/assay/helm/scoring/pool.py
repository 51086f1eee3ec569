"""Scores answers in several processes if that is faster; the values are the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, cast

from assay.helm.scoring.scorer import AnswerTexts, Score, Scorer
from assay.helm.scoring.worker import ScorerSpec, decode_scores, receive, score_batch, send

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS_BEFORE_WORKERS = 1.0
"""Scoring continues in worker processes after this time; starting one takes about as long."""

Scores = list[list[Score]]


class ScoringPool:
    """Scores batches of answers and returns futures.

    Scoring begins in this process. Worker processes start only after a while, so that small runs never wait for one. If
    a worker dies, its batch is scored in this process.

    Args:
        scorer: Scores an answer.
        parallelism: Maximum number of worker processes; 1 for none.
    """

    def __init__(self, scorer: Scorer, parallelism: int) -> None:
        self._scorer = scorer
        self._limit = min(parallelism, os.cpu_count() or 1)
        self._spent = 0.0
        self._threads: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._here = threading.Lock()

    def submit(self, batch: Sequence[AnswerTexts]) -> Future[Scores]:
        """Score a batch."""
        if self._limit > 1 and self._spent > _SECONDS_BEFORE_WORKERS:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._limit, thread_name_prefix="assay-scoring")
            return self._threads.submit(self._score_in_worker, batch)
        done: Future[Scores] = Future()
        begin = time.perf_counter()
        done.set_result(self._score_here(batch))
        self._spent += time.perf_counter() - begin
        return done

    @property
    def width(self) -> int:
        """The number of batches that are scored at the same time."""
        return 1 if self._threads is None else self._limit

    def close(self) -> None:
        """Stop the workers."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            with contextlib.suppress(OSError):  # it died with unread input
                cast("IO[bytes]", worker.stdin).close()
            cast("IO[bytes]", worker.stdout).close()
            worker.wait()
        self._workers = []

    def _score_here(self, batch: Sequence[AnswerTexts]) -> Scores:
        with self._here:
            return score_batch(self._scorer, batch)

    def _score_in_worker(self, batch: Sequence[AnswerTexts]) -> Scores:
        try:
            worker = getattr(self._local, "worker", None)
            if worker is None:
                worker = self._local.worker = self._start()
            send(cast("IO[bytes]", worker.stdin), batch)  # type: ignore[arg-type]
            reply = receive(cast("IO[bytes]", worker.stdout))  # type: ignore[arg-type]
        except (OSError, ValueError):  # the worker is gone, or the text cannot be sent (lone surrogates)
            reply = None
        return self._score_here(batch) if reply is None else decode_scores(reply)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        worker = subprocess.Popen(
            [sys.executable, "-m", "assay.helm.scoring.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._workers.append(worker)
        spec = ScorerSpec(self._scorer.names, self._scorer.num_outputs)
        send(cast("IO[bytes]", worker.stdin), spec)  # type: ignore[arg-type]
        return worker
