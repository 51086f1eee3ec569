"""Builds a task's samples in any order, each exactly as in a full run.

Some tasks draw few-shot examples from a random stream in document order, so that a prompt depends on all those before
it. A prompt that draws nothing does not depend on the stream. So prompts are built in the order in which they are asked
for, until one draws from the stream. Only then are all prompts of the task built once in document order, to record the
state of the stream at the beginning of each.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import UnsupportedTaskError
from assay.tasks.patches.fewshot import changes_examples
from assay.tasks.requests import SampleBuilder
from assay.tasks.selection import documents_of

if TYPE_CHECKING:
    from assay.tasks.protocol import Task
    from assay.tasks.requests import RequestWriter
    from assay.types import Sample, TaskOptions


class _Place(NamedTuple):
    """The state of a random stream. Most of it is a block of numbers that serves hundreds of draws."""

    version: int
    block: tuple[int, ...]
    position: int
    gauss: float | None

    @classmethod
    def of(cls, stream: random.Random) -> _Place:
        version, numbers, gauss = stream.getstate()
        return cls(version, numbers[:-1], numbers[-1], gauss)

    def restore(self, stream: random.Random) -> None:
        stream.setstate((self.version, (*self.block, self.position), self.gauss))

    def sharing(self, earlier: _Place) -> _Place:
        """The same state, sharing an equal block with the earlier one to save memory."""
        return self._replace(block=earlier.block) if self.block == earlier.block else self


class SamplesInAnyOrder:
    """Builds the samples of one task by their number."""

    def __init__(self, name: str, task: Task, writer: RequestWriter, options: TaskOptions) -> None:
        self._name = name
        self._task = task
        self._docs = task.eval_docs
        self._numbers = documents_of(name, task, options)
        self._builder = SampleBuilder(name, task, writer, options)
        self._stream: random.Random = getattr(getattr(task, "sampler", None), "rnd", None) or random.Random()
        """What the task draws its few-shot examples from; an unused stream if it has none."""
        self._places: dict[int, _Place] | None = None
        """By document, the state of the stream at its beginning; None until a prompt draws from the stream."""

    def sample(self, doc_id: int) -> Sample:
        """The sample of one document.

        Raises:
            UnsupportedTaskError: the task draws from a random stream that all tasks share, or its requests cannot be
                served.
        """
        if self._places is None:
            before = _Place.of(self._stream)
            built = self._build(doc_id)
            if _Place.of(self._stream) == before:
                return built
            self._places = self._find_places(before)
        self._places[doc_id].restore(self._stream)
        return self._build(doc_id)

    def _find_places(self, beginning: _Place) -> dict[int, _Place]:
        beginning.restore(self._stream)
        places = {}
        place = beginning
        for doc_id in self._numbers:
            places[doc_id] = place
            self._build(doc_id)
            place = _Place.of(self._stream).sharing(place)
        return places

    def _build(self, doc_id: int) -> Sample:
        shared = random.getstate()
        built = self._builder.build(doc_id, self._docs[doc_id])
        if changes_examples(self._task):
            raise UnsupportedTaskError(
                f"task '{self._name}' changes its few-shot examples while it writes prompts, so its documents cannot "
                "be asked in another order: run it without early stopping"
            )
        if random.getstate() != shared:
            raise UnsupportedTaskError(
                f"task '{self._name}' draws random numbers for its prompts from a stream that all tasks share, so its "
                "documents cannot be asked in another order: run it without early stopping"
            )
        return built
