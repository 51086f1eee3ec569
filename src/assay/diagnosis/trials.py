"""Scores repaired answers by the task's own filters and metrics, while the run's samples go by."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.extraction import Where, conclusion_of, gold_of
from assay.diagnosis.facts import OF_SHORT_ANSWERS, shortened
from assay.diagnosis.repairs import steps_of
from assay.types import MetricKey, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.diagnosis.facts import SampleFacts
    from assay.rescoring.text_scores import OtherText, TextScorer
    from assay.runs.samples import RunSample
    from assay.scoring.deadline import Deadline
    from assay.tasks.protocol import Task


class Trials:
    """Scores the repaired texts of the samples that a repair changes.

    Args:
        load: loads the run's tasks, which is done at the first text to score; None if they cannot be loaded.
        metrics: by task, the metric key; None: the task has no usable metric.
        deadline: interrupts a task's code if it runs too long.
    """

    def __init__(
        self, load: Callable[[], Mapping[str, Task] | None], metrics: Mapping[str, str | None], deadline: Deadline
    ) -> None:
        self._load, self._metrics, self._deadline = load, metrics, deadline
        self._scorers: dict[str, TextScorer] | None = None

    def measure(self, samples: Sequence[RunSample], facts: Sequence[SampleFacts]) -> list[SampleFacts]:
        """The facts, with the scores of their repaired texts."""
        measured = list(facts)
        by_task: dict[str, list[int]] = defaultdict(list)
        for place, fact in enumerate(facts):
            if _is_worth_a_trial(fact, samples[place], self._metrics.get(fact.task)):
                by_task[fact.task].append(place)
        for task, places in by_task.items():
            if (scorer := self._scorer(task)) is not None:
                found = _tried(scorer, [samples[place] for place in places], [facts[place] for place in places])
                for place, fact in zip(places, found, strict=True):
                    measured[place] = fact
        return measured

    def _scorer(self, task: str) -> TextScorer | None:
        if self._scorers is None:
            from assay.rescoring.text_scores import TextScorer  # lm-eval's code, which most triages do without

            tasks = self._load() or {}
            keys = {name: self._metrics.get(name) for name in tasks}
            self._scorers = {
                name: TextScorer(name, tasks[name], key, self._deadline) for name, key in keys.items() if key
            }
        return self._scorers.get(task)


def _is_worth_a_trial(fact: SampleFacts, sample: RunSample, key: str | None) -> bool:
    """Whether a repair changes the text, or another part of it could be right."""
    if key is None or not fact.is_generated or fact.score is None or len(sample.responses) != 1:
        return False
    return bool(fact.altered) or (_judges_short_answers(key) and _may_be_elsewhere(fact, sample))


@functools.lru_cache(maxsize=64)
def _judges_short_answers(key: str) -> bool:
    return MetricKey.read(key).metric in OF_SHORT_ANSWERS


def _may_be_elsewhere(fact: SampleFacts, sample: RunSample) -> bool:
    """Whether a part of a wrong answer could be right that was not compared with a short target already."""
    if (fact.score or 0.0) >= 1 or fact.missed is not None:
        return False
    return fact.outcome is Outcome.EMPTY or gold_of(sample.target) is None


def _tried(scorer: TextScorer, samples: Sequence[RunSample], facts: Sequence[SampleFacts]) -> list[SampleFacts]:
    from assay.rescoring.text_scores import OtherText

    texts: list[OtherText] = []
    spans: list[tuple[int, list[Where | None]]] = []
    for sample, fact in zip(samples, facts, strict=True):
        answer = sample.answers[0]
        text, prompt = shortened(answer.text or ""), sample.prompts[0].text if sample.prompts else ""
        steps = [step.text for step in steps_of(text, prompt)]
        kinds: list[Where | None] = [None] * len(steps)
        if _judges_short_answers(scorer.key) and _may_be_elsewhere(fact, sample):
            others = list(_other_texts(steps[-1] if steps else text, shortened(answer.reasoning or "")))
            steps += [other for _, other in others]
            kinds += [where for where, _ in others]
        spans.append((len(texts), kinds))
        doc = sample.document
        texts += [OtherText(sample.doc_id, doc, step) for step in steps]
    scores = scorer.scores(texts)
    return [
        _with_scores(fact, kinds, scores[first : first + len(kinds)])
        for fact, (first, kinds) in zip(facts, spans, strict=True)
    ]


def _other_texts(text: str, reasoning: str) -> list[tuple[Where, str]]:
    """What could be scored in place of a wrong answer's text: its conclusion; without a text, the reasoning's."""
    said = conclusion_of(text if text.strip() else reasoning, "")
    if text.strip():
        return [] if said is None or said.text == text else [(said.where, said.text)]
    thoughts = [reasoning, *([] if said is None else [said.text])]
    return [(Where.REASONING, thought) for thought in thoughts if thought.strip()]


def _with_scores(fact: SampleFacts, kinds: Sequence[Where | None], scores: Sequence[float | None]) -> SampleFacts:
    """The facts with what the texts scored."""
    repaired = tuple([score for kind, score in zip(kinds, scores, strict=True) if kind is None and score is not None])
    changes: dict[str, object] = {}
    if repaired and len(repaired) == len(fact.altered):
        changes["repaired"] = repaired
    best = max([fact.score or 0.0, *repaired])
    for kind, score in zip(kinds, scores, strict=True):
        if kind is None or score is None or score <= best:
            continue
        if kind is Where.REASONING:
            changes["answer_in_reasoning"] = True
        else:
            changes["missed"] = kind
        best = score
    return msgspec.structs.replace(fact, **changes) if changes else fact
