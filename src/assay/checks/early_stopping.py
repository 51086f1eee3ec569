"""Early stopping: documents are asked in a seeded random order, and only until every check is decided.

Answers arrive in any order, the quick ones first, and quick answers are no fair sample. So each answer waits until
those before it in the random order are there, and only then is scored and seen by the checks. What a check decides, and
after which document, is thereby a function of order and answers alone: not of timing, concurrency or interruptions.
Answers that arrive when nothing is left to decide are kept in the journal, but take no part.
"""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_right
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING

from assay.stats.multiple import holm
from assay.stats.plans import Decision
from assay.stats.sampling import random_order
from assay.types import Answer, StoppedEarly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from assay.checks.sequential import ScoreLookup, SequentialCheck
    from assay.models.concurrency import Concurrency
    from assay.results.verdicts import EvidenceCourse
    from assay.types import EarlyStopping, Response, Sample

_ROUNDS_AHEAD = 16
"""How far the asking may run ahead of the slowest answer, in documents for each request outstanding. Answers differ in
length ten times and more; a request that hangs must not have the whole benchmark asked meanwhile."""
_AHEAD_AT_FIRST = 32
"""Documents asked and not counted yet, at most, where the concurrency is Assay's own choice: what is not counted when
the last check is decided was asked in vain."""
_AHEAD_OF_COUNTED = 2
"""Later it may be one for so many that are counted."""
_LEAST_ON_THEIR_WAY = 4
"""One in so many of them is on its way at least, so that a request that hangs does not leave the server idle."""
_LETTERS_PER_TOKEN = 4


class EarlyStopper:
    """Draws documents in random order, hands their answers on in that order, and stops when all checks are decided."""

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
            checks: what is to be decided; every task belongs to at least one.
            documents: by task, the numbers of its documents; every task has some.
            stopping: budget, and how the checks share their error rates.
            seed: of the order.
            concurrency: how many requests are outstanding at once.
            score: scores a sample; called in the random order.
            lookup: the scores, as far as `score` was called.
        """
        self.checks = checks
        self.counted = dict.fromkeys(documents, 0)
        """By task, documents that took part."""
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
        self._began = time.monotonic()
        self._expected: deque[tuple[str, int]] = deque()
        """Drawn and not yet handed on, in the random order."""
        self._arrived: dict[tuple[str, int], tuple[Sample, Sequence[Response]]] = {}

    def draw(self) -> Iterator[tuple[str, int] | None]:
        """The documents to ask, task and number, until nothing is left to decide or the budget is used up.

        None where the answers on hand wait for one that is slow: asking more would not help before it is there.
        """
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
        """Whether asking more now would help little, or would soon have been in vain."""
        if len(self._expected) >= _ROUNDS_AHEAD * self._concurrency.limit:
            return True
        most = max(_AHEAD_AT_FIRST, sum(self.counted.values()) // _AHEAD_OF_COUNTED)
        on_their_way = len(self._expected) - len(self._arrived)
        is_enough = len(self._expected) >= most and on_their_way >= most // _LEAST_ON_THEIR_WAY
        return self._concurrency.is_searching and is_enough

    def receive(self, sample: Sample, responses: Sequence[Response]) -> None:
        """Take a sample's answers, in whatever order they come."""
        self._arrived[sample.task, sample.doc_id] = (sample, responses)
        while self._expected and self._expected[0] in self._arrived:
            task, doc_id = self._expected.popleft()
            found = self._arrived.pop((task, doc_id))
            if not self._stopped and self._is_open(task):
                self._count(*found)

    @property
    def at_most(self) -> int:
        """Documents that will be asked, if no check is decided before."""
        population, limit = sum(self._sizes.values()), self._stopping.budget.documents
        return population if limit is None else min(limit, population)

    def summary(self) -> StoppedEarly | None:
        """How much was asked; None if that was everything."""
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
        """How the evidence grew, by check; without those that could not be followed."""
        found = (check.evidence() for check in self.checks)
        return tuple(evidence for evidence in found if evidence is not None)

    def is_complete(self, check: SequentialCheck) -> bool:
        """Whether all documents that a check looks at took part, so that arithmetic decides."""
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
    """Tokens of prompts and completions, as the server counts them; of what it does not, a quarter of the letters."""
    total = 0
    for request, response in zip(sample.requests, responses, strict=True):
        if isinstance(response, Answer):
            total += _tokens(response.prompt_tokens, len(request.payload))
            total += _tokens(response.completion_tokens, len(response.text or "") + len(response.reasoning or ""))
    return total


def _tokens(counted: int | None, letters: int) -> int:
    return counted if counted and counted > 0 else letters // _LETTERS_PER_TOKEN


def seed_of(name: str) -> int:
    """A seed from a run's own name, so that it varies from run to run and stays when the run is resumed."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
