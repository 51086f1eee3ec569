"""Scores of programs: does what the model wrote pass its problem's tests?

As HELM scores HumanEval (Chen et al. 2021, https://arxiv.org/abs/2107.03374): the problem's prompt, four spaces and the
completion are executed with the tests, in the benchmark's own harness, for at most three seconds. HELM does it in its
own process's child; here it is done in a sandbox.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from assay.errors import DataNotFoundError, FileFormatError
from assay.sandbox.human_eval import checked_program, passed
from assay.sandbox.pool import Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from assay.helm.scenario import Instance, Reference
    from assay.sandbox.program import RunResult

CODE_SCORES = ("pass", "code_eval_acc")
"""Scores that run what the model wrote."""
TESTS_KEY = "test_cases"
"""Under which a reference carries its problem. HELM has it in memory and does not save it."""

_SECONDS = 3.0
_GZIP = b"\x1f\x8b"


class Problem(msgspec.Struct, frozen=True):
    """What a completion is tested with; HumanEval's field names."""

    prompt: str
    test: str
    entry_point: str
    canonical_solution: str = ""


@dataclass(frozen=True)
class UnsafeCode:
    """Permission to run what the model wrote, in a sandbox."""

    tests: str | Path | None = None
    """HumanEval's problems, JSON lines, gzipped or not. Needed where the run's references carry none."""


class CodeScorer:
    """Runs completions with their problems' tests. To be closed after use.

    Args:
        names: Of `CODE_SCORES`.
        num_outputs: How many completions the model was asked for.
        unsafe_code: The permission.

    Raises:
        SandboxError: Programs cannot be run here.
        DataNotFoundError: The file of problems does not exist.
        FileFormatError: It is damaged.
    """

    def __init__(self, names: Sequence[str], num_outputs: int, unsafe_code: UnsafeCode) -> None:
        self._names = names
        self._num_outputs = num_outputs
        self._problems = _Problems(() if unsafe_code.tests is None else read_problems(unsafe_code.tests))
        self._sandbox = Sandbox()
        self._sandbox.start()

    def lacks_tests(self, instance: Instance) -> bool:
        """Whether an instance has a right answer without tests."""
        return None in self._of(instance)

    def submit(self, instance: Instance, predictions: Sequence[str]) -> list[Future[RunResult]]:
        """Run all predictions against each right answer's tests, those of the first right answer first."""
        return [
            self._sandbox.submit(checked_program(_source(problem, prediction), _SECONDS))
            for problem in self._of(instance)
            if problem is not None
            for prediction in predictions
        ]

    def scores(self, num_predictions: int, runs: Sequence[Future[RunResult]]) -> dict[str, float]:
        """Statistics by name, of what `submit` gave for so many predictions."""
        right = [passed(run.result()) for run in runs]
        scores: dict[str, float] = {}
        for name in self._names:
            if name == "pass":
                first, best = (pass_at_k(len(right), sum(right), count) for count in (1, self._num_outputs))
            else:
                first, best = float(any(right[::num_predictions])), float(any(right))
            scores[name] = first
            scores[f"{name}@{self._num_outputs}"] = best
        return scores

    def close(self) -> None:
        """Stop whatever runs."""
        self._sandbox.close()

    def _of(self, instance: Instance) -> list[Problem | None]:
        return [self._problems.find(instance, reference) for reference in instance.all_correct_references]


def pass_at_k(count: int, num_right: int, k: int) -> float:
    r"""Chance that ``k`` of ``count`` answers hold a right one: :math:`1 - \binom{n-c}{k} / \binom{n}{k}`.

    As a product, Chen et al. 2021, https://arxiv.org/abs/2107.03374.
    """
    import numpy as np

    if count - num_right < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(count - num_right + 1, count + 1)))


def carried_problem(reference: Reference) -> Problem | None:
    """The problem that a reference carries with it.

    Raises:
        FileFormatError: It is none.
    """
    carried = dict(reference.extras or ()).get(TESTS_KEY)
    if carried is None:
        return None
    try:
        return msgspec.convert(carried, Problem)
    except msgspec.ValidationError as error:
        raise FileFormatError(f"a reference's {TESTS_KEY} are not a problem of HumanEval: {error}") from None


def read_problems(path: str | Path) -> Iterator[Problem]:
    """Read problems, one JSON object a line.

    Raises:
        DataNotFoundError: There is no such file.
        FileFormatError: A line is no problem.
    """
    try:
        content = Path(path).read_bytes()
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
    except FileNotFoundError:
        raise DataNotFoundError(f"there is no file {path}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                yield msgspec.json.decode(line, type=Problem)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                raise FileFormatError(f"{path}: line {number} is no problem of HumanEval: {error}") from None


class _Problems:
    """Finds an instance's problem: by its prompt, and where that was perturbed, by its solution."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._by_prompt: dict[str, Problem] = {}
        self._by_solution: dict[str, Problem | None] = {}
        for problem in problems:
            self._by_prompt[problem.prompt] = problem
            solution = problem.canonical_solution
            self._by_solution[solution] = None if solution in self._by_solution else problem

    def find(self, instance: Instance, reference: Reference) -> Problem | None:
        return (
            carried_problem(reference)
            or self._by_prompt.get(instance.input.text)
            or self._by_solution.get(reference.output.text)
        )


def _source(problem: Problem, completion: str) -> str:
    return f"{problem.prompt}    {completion}\n{problem.test}\ncheck({problem.entry_point})"
