"""Documents that are asked several times because the user says so, and the metrics that this adds.

What lm-eval reports of a task whose YAML has ``repeats`` is as a rule the score of each document's first answer, and it
stays so. Beside it, each metric that is a mean over documents is told of all answers, under names such as
``exact_match_avg@8``: of single answers on average (``avg``), of the best of k (``pass``), of the most frequent one
(``maj``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from assay.types import MetricKey

if TYPE_CHECKING:
    from assay.tasks.protocol import Task
    from assay.types import TaskOptions

RepeatKind = Literal["avg", "pass", "maj"]
_ASKED = "_assay_repeats"
_NAME = re.compile(r"(.+)_(avg|pass|maj)@([1-9][0-9]*)")


class RepeatMetric(NamedTuple):
    """A metric of all answers to a document."""

    base: str
    """The task's metric of one answer."""
    kind: RepeatKind
    k: int
    """Answers that it is about."""

    def __str__(self) -> str:
        return f"{self.base}_{self.kind}@{self.k}"

    @classmethod
    def read(cls, name: str) -> RepeatMetric | None:
        """The metric of that name (without a filter); None where it is no such metric."""
        found = _NAME.fullmatch(name)
        return None if found is None else cls(found[1], cast("RepeatKind", found[2]), int(found[3]))


def base_metric(name: str) -> str:
    """The task's own metric that a metric's name (without a filter) is about."""
    repeated = RepeatMetric.read(name)
    return name if repeated is None else repeated.base


def is_of_repeats(key: str) -> bool:
    """Whether a metric key is of all answers to a document."""
    return RepeatMetric.read(MetricKey.read(key).metric) is not None


def ask_repeatedly(task: Task, options: TaskOptions) -> None:
    """Have each document of a generative task asked as often as the options say."""
    if options.repeats is None or task.OUTPUT_TYPE != "generate_until":
        return
    task.set_config(key="repeats", value=options.repeats)
    setattr(task, _ASKED, options.repeats)


def repeats_asked(task: Task) -> int:
    """How often the user has each document asked; 1 where that is the task's own affair."""
    return int(getattr(task, _ASKED, 1))


def pass_sizes(repeats: int) -> list[int]:
    """Of which k pass@k is told: the powers of two, and all."""
    powers = [2**n for n in range(repeats.bit_length()) if 2**n < repeats]
    return [*powers, repeats]


def repeat_metrics(metric: str, repeats: int, *, higher_is_better: bool | None) -> list[RepeatMetric]:
    """What is told of all answers beside a metric of one.

    Args:
        metric: its name, without a filter.
        repeats: answers to each document.
        higher_is_better: None where the task does not say. Where less is better, nobody asks for the best of k.
    """
    sizes = [] if higher_is_better is False else pass_sizes(repeats)
    return [
        RepeatMetric(metric, "avg", repeats),
        *(RepeatMetric(metric, "pass", size) for size in sizes),
        RepeatMetric(metric, "maj", repeats),
    ]


class Pipeline(NamedTuple):
    """One of a task's filters, which takes single answers."""

    name: str
    alone: Any
    """lm-eval's ensemble, as the task has it."""
    voting: Any
    """The same, where of all answers to a document the most frequent is chosen as soon as the steps before have made
    each what it counts as: by lm-eval's ``majority_vote``, before the step that takes the first one."""


def pipelines_of_single_answers(task: Task) -> list[Pipeline]:
    """The task's filters but for those that themselves choose among the answers to a document."""
    from lm_eval.api.filter import FilterEnsemble
    from lm_eval.filters.selection import MajorityVoteFilter, TakeFirstFilter, TakeKFilter

    found = []
    for ensemble in getattr(task, "_filters", []):
        steps = [make() for make in ensemble.filters]
        if any(isinstance(step, MajorityVoteFilter | TakeKFilter) for step in steps):
            continue
        place = next((n for n, step in enumerate(steps) if isinstance(step, TakeFirstFilter)), len(steps))
        filters = [*ensemble.filters[:place], MajorityVoteFilter, *ensemble.filters[place:]]
        found.append(Pipeline(ensemble.name, ensemble, FilterEnsemble(name=ensemble.name, filters=filters)))
    return found
