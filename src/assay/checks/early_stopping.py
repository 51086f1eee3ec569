"""Early stopping: asks documents in a seeded random order, and only until every check is decided.

Quick answers arrive first, and they are not a fair sample. So an answer is scored and shown to the checks only when all
answers before it in the random order have arrived, but for those to tasks whose checks are all decided: they no longer
count. A decision therefore depends on the order and the answers alone, not on timing, concurrency or interruptions.
Answers that arrive after the last decision stay in the journal, unscored; those that take longer than any before are
not waited for.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from bisect import bisect_right
from collections import deque
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING

from assay.stats.multiple import holm
from assay.stats.plans import Decision
from assay.stats.sampling import random_order
from assay.types import Answer, StoppedEarly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from assay.checks.sequential import ScoreLookup, SequentialCheck
    from assay.client.concurrency import Concurrency
    from assay.results.check_results import EvidenceCourse
    from assay.types import EarlyStopping, Response, Sample

_ROUNDS_AHEAD = 16
"""For each request in flight, how many documents may be asked before the slowest answer arrives. One answer may take
ten times as long as another; but while one request hangs, the rest of the benchmark must not be asked in vain."""
_AHEAD_AT_FIRST = 32
"""With automatic concurrency: greatest number of documents asked and not yet counted, at the beginning. Those that are
not counted when the last check is decided were asked in vain."""
_COUNTED_PER_AHEAD = 2
"""Later: one more may be asked ahead for every two that are counted."""
_AHEAD_PER_IN_FLIGHT = 4
"""At least one in four of them is in flight, so that one request that hangs does not leave the server idle."""
_CHARACTERS_PER_TOKEN = 4
_SHORTEST_GRACE = 1.0
"""Least time in seconds that requests under way are given after the last decision."""


class EarlyStopper:
    """Draws documents in random order, scores their answers in that order, and stops when all checks are decided."""

    def __init__(
        self,
        checks: Sequence[SequentialCheck],
        documents: Mapping[str, Sequence[int]],
        stopping: EarlyStopping,
        *,
        seed: int,
        concurrency: Concurrency,
        score: Callable[[Sample, Sequence[Response]], None],
        lookup: ScoreLookup,
    ) -> None:
        """Begin with nothing asked.

        Args:
            checks: the checks to decide; each task belongs to at least one.
            documents: by task, the numbers of its documents; at least one.
            stopping: budget, and how the checks share their error rates.
            seed: of the random order.
            concurrency: how many requests are in flight at once.
            score: scores a sample; called in the random order.
            lookup: gives the scores of samples that `score` was called with.
        """
        self.checks = checks
        self.counted = dict.fromkeys(documents, 0)
        """By task, how many documents are scored."""
        self._documents = documents
        self._sizes = {task: len(numbers) for task, numbers in documents.items()}
        self._stopping = stopping
        self._seed = seed
        self._concurrency = concurrency
        self._score = score
        self._lookup = lookup
        self._asked = 0
        self._tokens = 0
        self._stopped = False
        self._is_over = asyncio.Event()
        self._slowest = _SHORTEST_GRACE
        self._began = time.monotonic()
        self._expected: deque[tuple[str, int]] = deque()
        """Documents drawn and not yet scored, in the random order."""
        self._arrived: dict[tuple[str, int], tuple[Sample, Sequence[Response]]] = {}

    def draw(self) -> Iterator[tuple[str, int] | None]:
        """The documents to ask, as task and number, until every check is decided or the budget is used up.

        None while received answers wait for a slow one: until it arrives, more answers could not be scored.
        """
        self._began = time.monotonic()
        names = list(self._sizes)
        starts = [0, *accumulate(self._sizes.values())]
        for number in random_order(starts[-1], self._seed):
            while self._may_ask() and self._is_far_ahead():
                yield None
            if not self._may_ask():
                return
            place = bisect_right(starts, number) - 1
            task = names[place]
            doc_id = self._documents[task][number - starts[place]]
            if not self._is_open(task):
                continue
            self._asked += 1
            self._expected.append((task, doc_id))
            yield task, doc_id

    def _is_far_ahead(self) -> bool:
        """Whether another answer could not be scored soon, or would probably be asked in vain."""
        if len(self._expected) >= _ROUNDS_AHEAD * self._concurrency.limit:
            return True
        most = max(_AHEAD_AT_FIRST, sum(self.counted.values()) // _COUNTED_PER_AHEAD)
        in_flight = len(self._expected) - len(self._arrived)
        is_enough = len(self._expected) >= most and in_flight >= most // _AHEAD_PER_IN_FLIGHT
        return self._concurrency.is_searching and is_enough

    def receive(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Take a sample's answers; samples may come in any order."""
        if self._is_open(sample.task) or (sample.task, sample.doc_id) in self._expected:
            self._arrived[sample.task, sample.doc_id] = (sample, responses)
        self._slowest = max([self._slowest, *(response.latency for response in responses)])
        while self._expected and (self._expected[0] in self._arrived or not self._is_open(self._expected[0][0])):
            task, doc_id = self._expected.popleft()
            found = self._arrived.pop((task, doc_id), None)
            if found is not None and not self._stopped and self._is_open(task):
                self._count(*found)
        if self._stopped or not any(check.is_open for check in self.checks):
            self._is_over.set()

    async def wait_until_over(self) -> None:
        """Return when requests under way need not be waited for any longer.

        After the last decision, or when the tokens are used up, they have as long as the slowest answer took; when the
        minutes are used up, they are given up at once.
        """
        minutes = self._stopping.budget.minutes
        with suppress(TimeoutError):
            async with asyncio.timeout(None if minutes is None else 60 * minutes):
                await self._is_over.wait()
                await asyncio.sleep(self._slowest)
        self._stopped = True

    @property
    def max_documents(self) -> int:
        """How many documents are asked if no check is decided earlier."""
        population, limit = sum(self._sizes.values()), self._stopping.budget.documents
        return population if limit is None else min(limit, population)

    def summary(self) -> StoppedEarly | None:
        """How much was asked; None if everything was."""
        if self.counted == self._sizes:
            return None
        return StoppedEarly(
            order_seed=self._seed,
            documents=sum(self.counted.values()),
            population=sum(self._sizes.values()),
            asked=self._asked,
            tasks={task: (self.counted[task], size) for task, size in self._sizes.items()},
        )

    def evidence(self) -> tuple[EvidenceCourse, ...]:
        """How the evidence on each check grew; without checks that only all documents can decide."""
        found = (check.evidence() for check in self.checks)
        return tuple(evidence for evidence in found if evidence is not None)

    def is_complete(self, check: SequentialCheck) -> bool:
        """Whether all of a check's documents are scored, so that arithmetic decides."""
        return all(self.counted[task] == self._sizes[task] for task in check.scope.tasks)

    def _count(self, sample: Sample, responses: Sequence[Response]) -> None:
        self._score(sample, responses)
        self.counted[sample.task] += 1
        for check in self.checks:
            if sample.task in check.scope.tasks:
                check.observe(sample.task, sample.doc_id, self._lookup)
        if self._stopping.holm:
            self._share_error_rates()
        self._tokens += tokens_of(sample, responses)
        limit = self._stopping.budget.tokens
        self._stopped = limit is not None and self._tokens >= limit

    def _share_error_rates(self) -> None:
        """Decide by Holm's method. Anytime-valid p-values only fall, so what is rejected once stays rejected."""
        tests = [check.test for check in self.checks]
        level = sum(check.check.error_rate for check in self.checks)
        for side, decision in ((0, Decision.PASS), (1, Decision.FAIL)):
            adjusted = holm([1.0 if test is None else test.p_values[side] for test in tests])
            for check, test, p_value in zip(self.checks, tests, adjusted, strict=True):
                if p_value <= level and test is not None and test.failed < test.seen and check.is_open:
                    check.decide(decision, level)

    def _may_ask(self) -> bool:
        budget = self._stopping.budget
        return not (
            self._stopped
            or not any(check.is_open for check in self.checks)
            or (budget.documents is not None and self._asked >= budget.documents)
            or (budget.minutes is not None and time.monotonic() - self._began >= 60 * budget.minutes)
        )

    def _is_open(self, task: str) -> bool:
        return any(check.is_open and task in check.scope.tasks for check in self.checks)


def tokens_of(sample: Sample, responses: Sequence[Response]) -> int:
    """Tokens of prompts and completions as the server counts them; where it does not, a quarter of the characters."""
    total = 0
    for request, response in zip(sample.requests, responses, strict=True):
        if isinstance(response, Answer):
            total += _tokens(response.prompt_tokens, len(request.payload))
            total += _tokens(response.completion_tokens, len(response.text or "") + len(response.reasoning or ""))
    return total


def _tokens(counted: int | None, characters: int) -> int:
    return counted if counted and counted > 0 else characters // _CHARACTERS_PER_TOKEN


def seed_of(name: str) -> int:
    """A seed from the name of a run's journal: it varies from run to run, and stays the same when a run is resumed."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
