"""The cells of the matrix, how each is run, and how its first line is judged."""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Triage
from assay.diagnosis.run import triage
from benchmarks.triage.documents import KINDS, MatrixTask, load, write_own_tasks
from benchmarks.triage.faults import FAULTS, Context, Fault
from benchmarks.triage.model import HealthyModel
from benchmarks.triage.replies import Reply
from benchmarks.triage.running import Script, run

_ENDPOINT = "http://a:8000"
_FEWEST_LOST = 5
_BY_NAME = {fault.name: fault for fault in FAULTS}


class Part(StrEnum):
    """What may be looked at while triage is being developed, and what may not."""

    DEVELOPMENT = "development"
    HELD_OUT = "held-out"


class Judgement(StrEnum):
    """What a first line is worth."""

    RIGHT = "right"
    SECOND = "second"
    """The right cause is the second one."""
    WRONG = "wrong"
    SILENT = "silent"
    """No cause is named, and one could be."""
    HONEST = "honest"
    """No cause is named, and none could be, or the fault costs next to nothing."""


class Cell(NamedTuple):
    """A fault in a task, at one strength."""

    form: str
    """The fault's name."""
    task: str
    strength: int

    @property
    def fault(self) -> Fault:
        """What happens in it."""
        return _BY_NAME[self.form]

    @property
    def part(self) -> Part:
        """Held out if its task or its form is."""
        return Part.HELD_OUT if self.fault.held_out or KINDS[self.task].held_out else Part.DEVELOPMENT


class Result(NamedTuple):
    """What triage said in a cell."""

    cell: Cell
    has_baseline: bool
    judgement: Judgement
    said: str
    """The key of the first cause; empty if there is none."""
    loss: float
    headline: str


class Healthy(NamedTuple):
    """What triage said of a healthy run."""

    task: str
    name: str
    has_baseline: bool
    said: str
    is_false_alarm: bool
    """Whether something other than the model is blamed."""
    headline: str
    part: Part


MODELS: tuple[HealthyModel, ...] = (
    HealthyModel(seed=1, accuracy=0.75),
    HealthyModel(seed=2, accuracy=0.6, style="terse"),
    HealthyModel(seed=3, accuracy=0.85, style="reasoning"),
    HealthyModel(seed=4, accuracy=0.55, language="de"),
    HealthyModel(seed=5, accuracy=0.9, language="fr", style="reasoning"),
    HealthyModel(seed=6, accuracy=0.35, language="es", style="terse"),
    HealthyModel(seed=7, accuracy=0.8, language="zh"),
)


_BASELINES = 5
"""How many of the models, the first ones, the faults are planted in."""


def cells(
    part: Part, tasks: tuple[str, ...] = tuple(KINDS), strengths: int = 3, sample: int | None = None
) -> list[Cell]:
    """The part's cells, in a fixed order; with `sample`, so many of them, drawn once and for all."""
    found = [
        Cell(fault.name, task, strength)
        for task in tasks
        for fault in FAULTS
        if (KINDS[task].explains or not fault.explained_only) and task in (fault.tasks or KINDS)
        for strength, share in enumerate(fault.strengths[:strengths])
        if share not in fault.strengths[:strength]
    ]
    of_part = [cell for cell in found if cell.part is part]
    if sample is None or sample >= len(of_part):
        return of_part
    chosen = set(random.Random(0).sample(of_part, sample))
    return [cell for cell in of_part if cell in chosen]


@dataclass(frozen=True)
class Bench:
    """One task with the healthy runs that its cells have as baselines.

    Args:
        folder: for its files.
        task: the task.
        model: the healthy model.
        baseline: its run.
    """

    folder: Path
    task: MatrixTask
    model: HealthyModel
    baseline: Path
    score: float
    """The baseline's."""

    @classmethod
    def of(cls, name: str, folder: Path, documents: int) -> Bench:
        """Load a task, and run the healthy model on it."""
        task = load(name, write_own_tasks(folder), documents)
        model = MODELS[sorted(KINDS).index(name) % _BASELINES]
        return cls.over(task, model, folder)

    @classmethod
    def over(cls, task: MatrixTask, model: HealthyModel, folder: Path) -> Bench:
        """Run the healthy model on a task."""
        baseline = run(folder / "baseline", task, healthy(task, model))
        return cls(folder, task, model, baseline, triage(baseline).score or 0.0)

    def results(self, cell: Cell) -> list[Result]:
        """Run a cell and look at it with and without its baseline."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            script = faulty(self.task, self.model, cell)
            ran = run(Path(folder), self.task, script, target=cell.fault.target)
            return [
                judged(
                    cell,
                    has_baseline,
                    triage(ran, self.baseline if has_baseline else None, score_again=False),
                    healthy_score=self.score,
                )
                for has_baseline in (True, False)
            ]

    def healthy_pairs(self) -> Iterator[Healthy]:
        """Each healthy model by itself, again beside itself, and a weaker one beside it."""
        part = Part.HELD_OUT if self.task.kind.held_out else Part.DEVELOPMENT
        for model in MODELS:
            weaker = replace(model, accuracy=model.accuracy - 0.15)
            again = replace(model, noise=0.02, run=1)
            with tempfile.TemporaryDirectory(dir=self.folder) as name:
                folder = Path(name)
                first = run(folder / "first", self.task, healthy(self.task, model))
                for kind, other in (("again", again), ("weaker", weaker)):
                    second = run(folder / kind, self.task, healthy(self.task, other))
                    for baseline in (first, None):
                        found = triage(second, baseline, score_again=False)
                        said = first_causes(found)[:1]
                        allowed = {"answers_worse"} if kind == "weaker" and baseline else set()
                        yield Healthy(
                            self.task.name,
                            f"{model.style} {model.language} {kind}",
                            baseline is not None,
                            "".join(said),
                            bool(set(said) - allowed),
                            found.headline,
                            part,
                        )


def healthy(task: MatrixTask, model: HealthyModel) -> Script:
    """The script of a healthy model behind a healthy server."""
    return lambda name, number: replace(model.reply(task, name, number), endpoint=_ENDPOINT)


def faulty(task: MatrixTask, model: HealthyModel, cell: Cell) -> Script:
    """The script of the same model with a fault, for one run: it counts the requests."""
    order = [(name, number) for name, numbers in task.samples.items() for number in numbers]
    places = {place: index for index, place in enumerate(order)}
    fault, strength = cell.fault, cell.fault.strengths[cell.strength]
    whole = healthy(task, model)
    shortest_first = sorted(order, key=lambda place: task.prompt_characters[place])
    ranks = {place: rank / len(order) for rank, place in enumerate(shortest_first)}
    asked = itertools.count()
    kept = task.prompt_characters[shortest_first[max(0, round((1 - strength) * len(order)) - 1)]]

    def answer(name: str, number: int) -> Reply:
        index = places[name, number]
        following = order[(index + 1) % len(order)]
        context = Context(
            task=name,
            said=model.said(task, name, number),
            wrong=task.wrong[name, number],
            option=task.options.get((name, number), {}).get(model.said(task, name, number)),
            constant=next(iter(task.right.values())),
            neighbour=whole(*following),
            explains=task.kind.explains,
            place=next(asked) / len(order),
            length_rank=ranks[name, number],
            longest_kept=kept,
            draw=random.Random(f"{fault.name} {name} {number}"),
        )
        reply = whole(name, number)
        if not fault.hits(context, strength):
            return reply
        return replace(fault.change(reply, context), after_stops=fault.after)

    return answer


def judged(cell: Cell, has_baseline: bool, found: Triage, *, healthy_score: float) -> Result:
    """Judge the first line by what an engineer would accept.

    Silence about a fault that costs less than five documents is honest: triage explains losses.
    """
    accepted = cell.fault.with_baseline if has_baseline else cell.fault.alone
    said = first_causes(found)
    keys = {str(cause) for cause in accepted}
    loss = healthy_score - (found.score or 0.0)
    is_felt = loss * found.samples >= _FEWEST_LOST or Cause.SERVER_FAILURES in accepted
    if not said:
        judgement = Judgement.SILENT if keys and is_felt else Judgement.HONEST
    elif said[0] in keys:
        judgement = Judgement.RIGHT
    elif len(said) > 1 and said[1] in keys:
        judgement = Judgement.SECOND
    else:
        judgement = Judgement.WRONG
    return Result(cell, has_baseline, judgement, "".join(said[:1]), loss, found.headline)


def first_causes(found: Triage) -> list[str]:
    """The keys of the causes that are named, the first line's first."""
    return [str(finding.cause) for finding in found.causes]
