"""The scores of a task's samples: each is scored when its answers have arrived, or fails.

The order of arrival does not matter. Values are kept by document and sorted at the end, and because some of lm-eval's
scorers draw random numbers, each sample is scored with its own random state.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from contextlib import nullcontext
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from assay._util.places import PlacesByDocument
from assay._util.spool import Spool
from assay.errors import MissingDependencyError
from assay.scoring.outcomes import outcome_of
from assay.scoring.random_state import random_state_of
from assay.scoring.sample_scores import AnsweredSample, Scored, Scorer
from assay.tasks.metrics import aggregation_of
from assay.tasks.repeats import RepeatMetric
from assay.tasks.scoring_needs import why_missing
from assay.tasks.task_errors import describe_error
from assay.types import Answer, FailedSample, Failure, FailureCause, MetricKey, Outcome, Response

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from assay.scoring.deadline import Deadline
    from assay.tasks.code_eval import Verdicts
    from assay.tasks.crash_record import CrashRecord
    from assay.tasks.protocol import Task
    from assay.types import CompleteSample, Sample

_RAISED_BY_SCORERS = (Exception, SystemExit, GeneratorExit)
_NO_CONTEXT = nullcontext()
_TOGETHER_SECONDS = 1.0
"""Time limit for several samples scored together. If they take longer, for example because a regular expression
backtracks without end on one answer, each is scored by itself with the full limit of a sample."""


def lines_spool(folder: Path) -> Spool:
    """Where sample lines wait until their files are written.

    Raises:
        OutputError: there can be no file in the folder.
    """
    return Spool(folder, what="scored samples", kept="the run's answers are kept in its journal")


class TaskScores:
    """The scores and failures of one task's samples so far."""

    def __init__(
        self,
        name: str,
        task: Task,
        spool: Spool,
        deadline: Deadline,
        verdicts: Verdicts | None = None,
        crashes: CrashRecord | None = None,
    ) -> None:
        """Begin with nothing scored.

        Args:
            name: the task's name.
            task: lm-eval's Task object.
            spool: stores the sample lines.
            deadline: how long one sample may take to score.
            verdicts: of the model's programs; None if the task runs none.
            crashes: records at which samples the process died; None where no run is resumed.
        """
        self.name = name
        self.task = task
        self.failed: dict[int, FailedSample] = {}
        self._refusal: str | None = None
        self._spool = spool
        self._deadline = deadline
        self._verdicts = verdicts
        self._scorer = Scorer(task)
        self._crashes = crashes if self._scorer.is_foreign or verdicts is not None else None
        self._filters = self._scorer.fallbacks
        self._process = os.getpid()
        self._random_state = random_state_of if self._scorer.is_foreign else _shared_random_state
        self._begin()

    def _begin(self) -> None:
        self._metrics: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        self._repeats: dict[str, dict[int, Mapping[str, Fraction]]] = defaultdict(dict)
        self._outcomes: dict[str, dict[int, Outcome]] = defaultdict(dict)
        self._lines: dict[str, dict[int, int]] = defaultdict(dict)
        self._hashes: dict[int, bytes] = {}

    def release_samples(self) -> None:
        """Free the memory of the scored samples, once they are written."""
        self._begin()

    @property
    def scored(self) -> int:
        """How many samples have scores."""
        return len(self._hashes)

    @property
    def done(self) -> int:
        """How many samples are scored or failed."""
        return len(self._hashes) + len(self.failed)

    @property
    def scored_documents(self) -> list[int]:
        """The documents that have scores, in order."""
        return sorted(self._hashes)

    @property
    def fallbacks(self) -> dict[str, list[Any]]:
        """By filter, what it returns if it finds no answer."""
        return {name: list(values) for name, values in self._filters.items()}

    def outcome_counts(self, filter_name: str) -> dict[Outcome, int]:
        """How many samples had which outcome under one filter, failed ones included."""
        counts = Counter(self._outcomes.get(filter_name, {}).values())
        counts[Outcome.FAILED] = len(self.failed)
        return {outcome: counts[outcome] for outcome in Outcome}

    def prepare(self, sample: Sample, responses: Sequence[Response]) -> Coroutine[Any, Any, None] | None:
        """A coroutine that runs the programs in a sample's answers, to be awaited before :meth:`receive`; else None."""
        if self._verdicts is None or not responses or any(isinstance(response, Failure) for response in responses):
            return None
        if self._crashes is not None and self._crashes.refusal(self.name, sample.doc_id):
            return None
        answers = [response for response in responses if isinstance(response, Answer)]

        def score_on_trial() -> None:
            with self._crash_noted(sample), self._deadline, self._random_state(sample):
                self._scorer.score([AnsweredSample(sample, answers)])

        return self._verdicts.prepare(sample.doc_id, score_on_trial)

    def refuse(self, reason: str) -> None:
        """Record why the task's prompts cannot be built from some document on; those samples have no requests."""
        self._refusal = reason

    def fail_all_if_refused(self) -> None:
        """Fail all samples if the task was refused: lm-eval would not have asked it at all."""
        if self._refusal is not None:
            for doc_id in self.scored_documents:
                self._forget(doc_id)
                self._fail(doc_id, FailureCause.UNSCORABLE, self._refusal)

    def receive(self, complete: Iterable[CompleteSample]) -> None:
        """Score samples, or record why they have no score."""
        answered = []
        for sample, responses in complete:
            if not sample.instances:  # an empty text has instances but no request: its log-likelihood is 0
                self._fail(sample.doc_id, FailureCause.UNSCORABLE, self._refusal or "the document asks nothing")
                continue
            answers: list[Answer] = []
            for response in responses:
                if isinstance(response, Failure):
                    self._fail(sample.doc_id, response.cause, response.message)
                    break
                answers.append(response)
            else:
                answered.append(AnsweredSample(sample, answers))
        if self._scorer.is_foreign or self._verdicts is not None:
            for one in answered:
                self._score_or_fail([one])
        elif answered:
            self._score_or_fail(answered)

    def _score_or_fail(self, answered: Sequence[AnsweredSample]) -> None:
        """Score samples together, or each by itself if that fails."""
        sample = answered[0].sample
        if self._crashes is not None and (refusal := self._crashes.refusal(self.name, sample.doc_id)):
            self._fail(sample.doc_id, FailureCause.UNSCORABLE, refusal)
            return
        deadline = self._deadline if len(answered) == 1 else self._deadline.within(_TOGETHER_SECONDS)
        try:
            with self._crash_noted(sample), deadline, self._random_state(sample), self._judged_programs(sample):
                scored = self._scorer.score(answered)
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"task '{self.name}' cannot be scored: it needs the Python module '{error.name}', "
                f"{why_missing(error.name or '') or 'which is not installed'}; then run the same command again, the "
                "answers are kept"
            ) from None
        except _RAISED_BY_SCORERS as error:  # an error of the task's code fails only its sample
            if len(answered) > 1:
                for one in answered:
                    self._score_or_fail([one])
            else:
                self._fail(sample.doc_id, FailureCause.UNSCORABLE, f"the task's scorer failed: {describe_error(error)}")
            return
        finally:
            if self._scorer.is_foreign:
                self._leave_if_forked()
                self._deadline.restore()
        for one, found in zip(answered, scored, strict=True):
            self._keep(one, found)

    def _leave_if_forked(self) -> None:
        """End this process if the scorer forked it: it must not continue the run."""
        if os.getpid() != self._process:
            os._exit(0)

    def _crash_noted(self, sample: Sample) -> AbstractContextManager[None]:
        return _NO_CONTEXT if self._crashes is None else self._crashes.scoring(self.name, sample.doc_id)

    def _judged_programs(self, sample: Sample) -> AbstractContextManager[None]:
        return _NO_CONTEXT if self._verdicts is None else self._verdicts.known_for(sample.doc_id)

    def _fail(self, doc_id: int, cause: FailureCause, message: str) -> None:
        self.failed[doc_id] = FailedSample(self.name, doc_id, cause, message)

    def _keep(self, answered: AnsweredSample, scored: Sequence[Scored]) -> None:
        doc_id = answered.sample.doc_id
        for name, filtered, metrics, repeats, line, _ in scored:
            self._metrics[name][doc_id] = metrics
            if repeats:
                self._repeats[name][doc_id] = repeats
            self._lines[name][doc_id] = self._spool.append(line)
            self._outcomes[name][doc_id] = outcome_of(answered.answers, filtered, self._filters.get(name, ()))
        self._hashes[doc_id] = scored[0].hashes

    def fail_what_cannot_be_aggregated(self) -> None:
        """Fail samples with a metric of None if the task's aggregation cannot handle it.

        Call it when all samples are scored. Some aggregations skip documents whose metric is None; with the others
        lm-eval would end with an error.
        """
        for (metric, name), values in self.raw_metrics().items():
            if not any(value is None for value in values):
                continue
            try:
                aggregation_of(self.task, metric)(values)
            except _RAISED_BY_SCORERS as error:
                reason = (
                    f"the task gave None for '{metric}', which its aggregation cannot take: {describe_error(error)}"
                )
                for doc_id, value in self.values_by_document(metric, name).items():
                    if value is None:
                        self._forget(doc_id)
                        self._fail(doc_id, FailureCause.UNSCORABLE, reason)

    def _forget(self, doc_id: int) -> None:
        for by_filter in (self._metrics, self._repeats, self._lines, self._outcomes):
            for by_document in by_filter.values():
                by_document.pop(doc_id, None)
        del self._hashes[doc_id]

    def failed_samples(self) -> list[FailedSample]:
        """Samples without a score, in document order."""
        return [self.failed[doc_id] for doc_id in sorted(self.failed)]

    def raw_metrics(self) -> dict[tuple[str, str], list[Any]]:
        """By metric and filter, the values in document order, as lm-eval's aggregation needs them."""
        values: dict[tuple[str, str], list[Any]] = {}
        for name in self._ordered(self._metrics):
            for doc_id in sorted(self._metrics[name]):
                for metric, value in self._metrics[name][doc_id].items():
                    values.setdefault((metric, name), []).append(value)
        return values

    def filtered(self, doc_id: int) -> dict[str, list[Any]]:
        """By filter, what it extracted from one scored document's answers."""
        lines = {name: self._spool.read(places[doc_id]) for name, places in self._lines.items() if doc_id in places}
        return {name: json.loads(line)["filtered_resps"] for name, line in lines.items()}

    def values_by_document(self, metric: str, filter_name: str) -> dict[int, Any]:
        """One metric's value for each scored document, in document order."""
        values = self.exact_values(metric, filter_name)
        return {doc_id: _plain(value) for doc_id, value in values.items()}

    def exact_values(self, metric: str, filter_name: str) -> dict[int, Any]:
        """:meth:`values_by_document` before conversion: metrics over repeated answers are fractions."""
        scored = self._of(metric, filter_name)
        return {doc_id: scored[doc_id][metric] for doc_id in sorted(scored) if metric in scored[doc_id]}

    def _of(self, metric: str, filter_name: str) -> Mapping[int, Mapping[str, Any]]:
        """By document, the metrics of the same kind: over repeated answers, or lm-eval's."""
        kept = self._metrics if RepeatMetric.read(metric) is None else self._repeats
        return kept.get(filter_name, {})

    def values_so_far(self, metric: str, filter_name: str) -> list[Any]:
        """One metric's values in order of arrival; another thread may call this while samples are scored."""
        scored = list(self._metrics.get(filter_name, {}).values())
        return [_plain(metrics[metric]) for metrics in scored if metric in metrics]

    def first_values(self) -> tuple[str | None, list[Any]]:
        """The key of the first metric under the first filter, and its values so far; None before the first score."""
        for name in self._ordered(self._metrics):
            for metrics in list(self._metrics[name].values())[:1]:
                for metric in metrics:
                    return str(MetricKey(metric, name)), self.values_so_far(metric, name)
        return None, []

    def value(self, doc_id: int, metric: str, filter_name: str) -> Any:
        """One metric's value for one document; None if it has none."""
        return _plain(self._of(metric, filter_name).get(doc_id, {}).get(metric))

    def hashes(self, doc_id: int) -> tuple[str, str, str]:
        """A scored document's hashes in its sample lines: of the document, its prompt and its target."""
        kept = self._hashes[doc_id].hex()
        return kept[:64], kept[64:128], kept[128:]

    def sample_lines(self) -> Iterator[bytes]:
        """Lines of lm-eval's samples file: filter by filter, each in document order."""
        for name in self._ordered(self._lines):
            for doc_id in sorted(self._lines[name]):
                yield self._spool.read(self._lines[name][doc_id])

    def line_places(self) -> PlacesByDocument:
        """Where each document's lines begin in the file of :meth:`sample_lines`."""
        places, offset = PlacesByDocument(), 0
        for name in self._ordered(self._lines):
            for doc_id in sorted(self._lines[name]):
                places.add(doc_id, offset)
                offset += self._spool.length(self._lines[name][doc_id])
        return places

    def task_hash(self) -> str:
        """lm-eval's ``task_hashes`` entry: a hash of every sample line's document, prompt and target."""
        digest = hashlib.sha256()
        for _ in self._lines:
            for doc_id in sorted(self._hashes):
                digest.update(self._hashes[doc_id].hex().encode())
        return digest.hexdigest()

    def _ordered(self, by_filter: dict[str, Any]) -> list[str]:
        return [name for name in self._filters if name in by_filter]


def _plain(value: Any) -> Any:
    """A fraction or NumPy scalar as a Python number; only lm-eval's aggregation needs NumPy's."""
    if isinstance(value, Fraction):
        return float(value)
    return value.item() if isinstance(value, np.generic) else value


def receive_all(scores: Mapping[str, TaskScores], complete: Iterable[CompleteSample]) -> None:
    """Score samples of several tasks, or record why they have no score.

    Args:
        scores: by task, its scores.
        complete: the samples with their responses.
    """
    by_task = defaultdict(list)
    for one in complete:
        by_task[one.sample.task].append(one)
    for task, of_task in by_task.items():
        scores[task].receive(of_task)


def _shared_random_state(_: Sample) -> AbstractContextManager[None]:
    return _NO_CONTEXT
