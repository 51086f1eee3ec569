"""Pairs the baseline's samples with the run's, as for a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.diagnosis.evidence import Baseline, Twin
from assay.diagnosis.facts import SampleFacts, facts_of_run
from assay.diagnosis.harness import scored_again
from assay.errors import FileFormatError
from assay.runs.baseline import is_baseline
from assay.runs.files import read_run
from assay.runs.pairing import pair_tasks
from assay.runs.record import mean
from assay.runs.samples import RunSamples, results_file_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from assay.runs.pairing import Pairing

_TASKS_NAMED = 3


def baseline_of(
    path: Path, samples: RunSamples, metrics: Mapping[str, str | None], *, score_again: bool = False
) -> Baseline:
    """The baseline at `path`, paired with a run.

    Args:
        path: a run or a baseline file.
        samples: the run.
        metrics: by task under triage, the metric key; None if the task has no usable metric.
        score_again: if other versions made the baseline, score its answers again with the present ones.

    Raises:
        FileFormatError: a run is missing or damaged, or the two have no task in common.
    """
    before, after = read_run(path), read_run(samples.file)
    common = {task: key for task, key in metrics.items() if task in before.tasks}
    if not common:
        raise FileFormatError(f"{path} has none of the tasks of {samples.file} ({_listed(metrics)})")
    document, facts, scored_now = None, {}, {}
    if path.is_dir() or not is_baseline(path):
        with RunSamples(results_file_of(path)) as theirs:
            document = theirs.document
            ours = {task: key for task, key in common.items() if key is not None and task in theirs.tasks}
            facts = {sample.place: sample for sample in facts_of_run(theirs, ours)}
            scored_now = scored_again(theirs, samples, ours) if score_again else {}
    pairings = {task: pair_tasks(before.tasks[task], after.tasks[task]) for task in common}
    return Baseline(
        source=before.source,
        twins={
            place: twin
            for task, key in common.items()
            if key is not None
            for place, twin in _twins(task, key, pairings[task], facts).items()
        },
        targets={each.doc_hash: (each.target_hash, each.gold) for each in facts.values() if each.doc_hash is not None},
        mismatches={task: pairing.changes for task, pairing in pairings.items() if pairing.changes},
        partial={task: pairing.partial for task, pairing in pairings.items() if pairing.partial},
        lm_eval=before.versions.get("lm_eval", "?"),
        document=document,
        scored_now=scored_now,
    )


def _listed(tasks: Collection[str]) -> str:
    more = len(tasks) - _TASKS_NAMED
    return ", ".join(list(tasks)[:_TASKS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _twins(
    task: str, key: str, pairing: Pairing, facts: Mapping[tuple[str, int], SampleFacts]
) -> dict[tuple[str, int], Twin]:
    known = pairing.baseline.scores.get(key)
    twins = {}
    for pair in pairing.pairs:
        if pair.before is None or known is None:
            continue
        number = pairing.baseline.doc_ids[pair.before]
        twins[task, pair.doc_id] = Twin(score=mean((known[pair.before],)), facts=facts.get((task, number)))
    return twins
