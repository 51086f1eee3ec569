"""Runs the programs that a model wrote while other answers are still pending.

lm-eval's tasks ask a metric for a program's verdict while they score a sample. Running programs takes seconds, so a
sample is first scored on trial, to learn which programs it has. These run in the sandbox, and then it is scored.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter, defaultdict
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import SandboxError
from assay.sandbox.human_eval import checked_program, passed, verdict_words
from assay.sandbox.pool import Sandbox
from assay.sandbox.program import Ending, RunResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from assay.sandbox.program import Confinement, Program
    from assay.tasks.crash_record import CrashRecord
    from assay.tasks.protocol import Task

_SECONDS = 3.0
_NOT_YET = RunResult(Ending.DIED)
_MOST_TRIALS = 10
"""After so many trials, a scorer that asks for other programs each time has them run one by one."""


class Verdicts:
    """The results of one task's programs, by document.

    Args:
        task: its name.
        sandbox: where they run.
        crashes: records which of them ran when the process died.
    """

    def __init__(self, task: str, sandbox: Sandbox, crashes: CrashRecord | None = None) -> None:
        self._task = task
        self._sandbox = sandbox
        self._crashes = crashes
        self._known: dict[int, dict[Program, RunResult]] = {}
        self._failed: dict[int, SandboxError] = {}

    async def prepare(self, doc_id: int, trial: Callable[[], object]) -> None:
        """Run the programs that scoring the document needs. `trial` scores it; what it raises is ignored."""
        known = self._known.setdefault(doc_id, {})
        for _ in range(_MOST_TRIALS):
            missing: dict[Program, None] = {}
            answer = functools.partial(_known_or_noted, known, missing)
            with _answering(answer), contextlib.suppress(Exception, SystemExit, GeneratorExit):
                trial()
            if not missing:
                return
            try:
                async with self._noted(doc_id):
                    futures = [asyncio.wrap_future(self._sandbox.submit(program)) for program in missing]
                    known.update(zip(missing, await asyncio.gather(*futures), strict=True))
            except SandboxError as error:
                self._failed[doc_id] = error
                return

    def _noted(self, doc_id: int) -> AbstractAsyncContextManager[None]:
        return contextlib.nullcontext() if self._crashes is None else self._crashes.running_programs(self._task, doc_id)

    @contextlib.contextmanager
    def known_for(self, doc_id: int) -> Iterator[None]:
        """Give a document's scorer the results of its programs in this block, and forget them afterwards.

        Programs that were not prepared run now.

        Raises:
            SandboxError: one of them could not be run.
        """
        known, failed = self._known.pop(doc_id, {}), self._failed.pop(doc_id, None)
        if failed is not None:
            raise failed
        failures: list[SandboxError] = []

        def answer(programs: Sequence[Program]) -> list[RunResult]:
            missing = [program for program in dict.fromkeys(programs) if program not in known]
            try:
                known.update(zip(missing, self._sandbox.run(missing), strict=True))
            except SandboxError as error:
                failures.append(error)
                raise
            return [known[program] for program in programs]

        with _answering(answer):
            yield
        if failures:  # which the scorer swallowed, as if the program were wrong
            raise failures[0]


@contextlib.contextmanager
def verdicts_of(
    tasks: Mapping[str, Task], crashes: CrashRecord | None = None
) -> Iterator[tuple[dict[str, Verdicts], Confinement | None]]:
    """A sandbox for the tasks that run code which the model writes, if there are any.

    Args:
        tasks: lm-eval's Task objects by name.
        crashes: records at which samples the process died; None where no run is resumed.

    Yields:
        Their verdicts, and how the sandbox confines their programs.

    Raises:
        SandboxError: programs cannot be run here.
    """
    names = [name for name, task in tasks.items() if runs_code(task)]
    if not names:
        yield {}, None
        return
    with Sandbox() as sandbox:
        yield {name: Verdicts(name, sandbox, crashes) for name in names}, sandbox.start()


def runs_code(task: Task) -> bool:
    """Whether a task says that it runs code which the model writes (``unsafe_code``)."""
    return bool(getattr(task, "UNSAFE_CODE", False))


_answer: ContextVar[Callable[[Sequence[Program]], list[RunResult]] | None] = ContextVar("_answer", default=None)


@contextlib.contextmanager
def _answering(answer: Callable[[Sequence[Program]], list[RunResult]]) -> Iterator[None]:
    token = _answer.set(answer)
    try:
        yield
    finally:
        _answer.reset(token)


def _known_or_noted(
    known: dict[Program, RunResult], missing: dict[Program, None], programs: Sequence[Program]
) -> list[RunResult]:
    missing.update(dict.fromkeys(program for program in programs if program not in known))
    return [known.get(program, _NOT_YET) for program in programs]


def judge(programs: Sequence[Program]) -> list[RunResult]:
    """The results of programs: while a sample is being scored those that are known, else by running them now.

    Raises:
        SandboxError: they cannot be run here.
    """
    if (answer := _answer.get()) is not None:
        return answer(programs)
    with Sandbox(width=1) as sandbox:
        return sandbox.run(programs)


class CodeEval:
    """The metric ``code_eval`` of the Hugging Face hub: same arguments, same values."""

    name = "code_eval"

    def compute(
        self,
        *,
        predictions: Sequence[Sequence[str]],
        references: Sequence[str],
        k: int | Sequence[int] = (1, 10, 100),
        num_workers: int = 4,  # noqa: ARG002 - the sandbox knows how many programs to run at a time
        timeout: float = _SECONDS,
    ) -> tuple[dict[str, Any], dict[int, list[tuple[int, dict[str, Any]]]]]:
        """Run every candidate with its problem's tests.

        Args:
            predictions: for each problem, candidates.
            references: for each problem, its tests.
            k: of which k to estimate pass@k.
            num_workers: ignored.
            timeout: seconds for one candidate.

        Returns:
            The mean of pass@k over the problems, for each k of which every problem has enough candidates; and by
            problem what became of its candidates.

        Raises:
            SandboxError: programs cannot be run here.
        """
        asked = [
            (task, candidate + "\n" + tests)
            for task, (candidates, tests) in enumerate(zip(predictions, references, strict=False))
            for candidate in candidates
        ]
        programs = [checked_program(source, timeout) for _, source in asked]
        results: dict[int, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        numbers: Counter[int] = Counter()
        for (task, _), result in zip(asked, judge(programs), strict=True):
            number = numbers[task]
            numbers[task] += 1
            verdict = {
                "task_id": task,
                "passed": passed(result),
                "result": verdict_words(result),
                "completion_id": number,
            }
            results[task].append((number, verdict))
        total = np.array([len(candidates) for candidates in results.values()])
        correct = np.array([sum(verdict["passed"] for _, verdict in candidates) for candidates in results.values()])
        ks = [k] if isinstance(k, int) else k
        estimates = {f"pass@{size}": _pass_at_k(total, correct, size).mean() for size in ks if (total >= size).all()}
        return estimates, results


def _pass_at_k(total: np.ndarray[Any, Any], correct: np.ndarray[Any, Any], k: int) -> np.ndarray[Any, Any]:
    """For each problem the unbiased estimate that one of k candidates is right (arXiv 2107.03374, equation 1)."""
    return np.array([_of_one(int(n), int(c), k) for n, c in zip(total, correct, strict=True)])


def _of_one(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


def check_correctness(check_program: str, timeout: float = _SECONDS) -> bool:
    """Stands in for the function of that name in lm-eval's cruxeval.

    Raises:
        SandboxError: programs cannot be run here.
    """
    return passed(judge([checked_program(check_program, timeout)])[0])
