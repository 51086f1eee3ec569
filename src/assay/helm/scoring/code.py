"""Scores of programs: does the model's code pass its problem's tests?

As HELM scores HumanEval (Chen et al. 2021, https://arxiv.org/abs/2107.03374): the problem's prompt, four spaces and the
completion are executed with the tests, in the benchmark's own harness, for at most three seconds. HELM runs them in a
child process; Assay runs them in a sandbox.
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
"""Scores that run code written by the model."""
TESTS_KEY = "test_cases"
"""The field of a reference with its problem, which HELM has in memory and does not save."""

_SECONDS = 3.0
_GZIP = b"\x1f\x8b"


class Problem(msgspec.Struct, frozen=True):
    """A problem of HumanEval, with the benchmark's field names."""

    prompt: str
    test: str
    entry_point: str
    canonical_solution: str = ""


@dataclass(frozen=True)
class UnsafeCode:
    """Permission to run code written by the model, in a sandbox."""

    tests: str | Path | None = None
    """HumanEval's problems as JSON lines, gzipped or not. Needed if the run's references have none."""


class CodeScorer:
    """Runs completions with their problems' tests. Close it after use.

    Args:
        names: Scores, out of `CODE_SCORES`.
        num_outputs: The number of completions for each request.
        unsafe_code: The permission to run them.

    Raises:
        SandboxError: The sandbox cannot start on this machine.
        DataNotFoundError: The file of problems does not exist.
        FileFormatError: The file of problems is damaged.
    """

    def __init__(self, names: Sequence[str], num_outputs: int, unsafe_code: UnsafeCode) -> None:
        self._names = names
        self._num_outputs = num_outputs
        self._problems = _Problems(() if unsafe_code.tests is None else read_problems(unsafe_code.tests))
        self._sandbox = Sandbox()
        self._sandbox.start()

    def lacks_tests(self, instance: Instance) -> bool:
        """Whether any right answer of an instance has no tests."""
        return None in self._of(instance)

    def submit(self, instance: Instance, predictions: Sequence[str]) -> list[Future[RunResult]]:
        """Run all predictions with each right answer's tests, in the order of the right answers."""
        return [
            self._sandbox.submit(checked_program(_source(problem, prediction), _SECONDS))
            for problem in self._of(instance)
            if problem is not None
            for prediction in predictions
        ]

    def scores(self, num_predictions: int, runs: Sequence[Future[RunResult]]) -> dict[str, float]:
        """Statistics by name, from the runs that `submit` returned for this number of predictions."""
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
        """Stop all programs."""
        self._sandbox.close()

    def _of(self, instance: Instance) -> list[Problem | None]:
        return [self._problems.find(instance, reference) for reference in instance.all_correct_references]


def pass_at_k(count: int, num_right: int, k: int) -> float:
    r"""Probability that a right answer is among ``k`` of ``count`` answers: :math:`1 - \binom{n-c}{k} / \binom{n}{k}`.

    Computed as a product, as in Chen et al. 2021, https://arxiv.org/abs/2107.03374.
    """
    import numpy as np

    if count - num_right < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(count - num_right + 1, count + 1)))


def problem_of(reference: Reference) -> Problem | None:
    """The problem in a reference, if it has one.

    Raises:
        FileFormatError: The field is not a problem of HumanEval.
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
        FileFormatError: A line is not a problem.
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
                raise FileFormatError(f"{path}: line {number} is not a problem of HumanEval: {error}") from None


class _Problems:
    """Finds an instance's problem by its prompt, or by its solution if the prompt was perturbed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self._by_prompt: dict[str, Problem] = {}
        self._by_solution: dict[str, Problem | None] = {}
        for problem in problems:
            self._by_prompt[problem.prompt] = problem
            solution = problem.canonical_solution
            self._by_solution[solution] = None if solution in self._by_solution else problem

    def find(self, instance: Instance, reference: Reference) -> Problem | None:
        return (
            problem_of(reference)
            or self._by_prompt.get(instance.input.text)
            or self._by_solution.get(reference.output.text)
        )


def _source(problem: Problem, completion: str) -> str:
    return f"{problem.prompt}    {completion}\n{problem.test}\ncheck({problem.entry_point})"
