"""Runs all detectors on a run, ranks their findings, and states the most probable cause in one line."""

from __future__ import annotations

import logging
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.diagnosis.alterations import altered
from assay.diagnosis.baseline import baseline_of
from assay.diagnosis.causes import Cause
from assay.diagnosis.comparability import baseline_is_part, mismatches, other_lm_eval, sampled
from assay.diagnosis.contents import degenerate, not_extracted, not_read
from assay.diagnosis.decline import answers_worse, chance_level
from assay.diagnosis.endings import same_beginning, server_cap, stopped_early, truncated, without_content
from assay.diagnosis.evidence import Evidence
from assay.diagnosis.facts import facts_of_run
from assay.diagnosis.findings import Finding, LossReference, Triage
from assay.diagnosis.harness import harness_changed
from assay.diagnosis.misplaced import same_answer, swapped, targets_changed
from assay.diagnosis.server import (
    cut_at_one_length,
    other_server,
    probed,
    prompt_tokens,
    server_failures,
    template_markers,
    wrong_model,
)
from assay.diagnosis.slices import slices
from assay.diagnosis.trials import Trials
from assay.diagnosis.waterfall import own_gains, waterfall_of
from assay.errors import SpecificationError
from assay.results.check_results import Verdict
from assay.runs.samples import RunSamples, results_file_of
from assay.scoring.deadline import SCORING_SECONDS, Deadline
from assay.tasks.repeats import is_of_repeats
from assay.types import MetricKey, score_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay._util.places import PlacesByDocument
    from assay.diagnosis.judging import Detector, Found
    from assay.results.check_results import CheckResult
    from assay.runs.samples import SampleReader
    from assay.tasks.protocol import Task

_log = logging.getLogger(__name__)
_DETECTORS: tuple[Detector, ...] = (
    server_failures,
    wrong_model,
    other_server,
    probed,
    prompt_tokens,
    cut_at_one_length,
    template_markers,
    targets_changed,
    mismatches,
    baseline_is_part,
    harness_changed,
    other_lm_eval,
    sampled,
    truncated,
    without_content,
    altered,
    same_beginning,
    server_cap,
    not_read,
    stopped_early,
    not_extracted,
    degenerate,
    swapped,
    same_answer,
    slices,
    chance_level,
)


def triage(
    run: str | Path, baseline: str | Path | None = None, *, score_again: bool = True, tasks: Sequence[str] = ()
) -> Triage:
    """Find out why a finished run scored as it did: the most probable cause, then all findings.

    Args:
        run: a results file, a samples file or a folder of results (its newest run), of Assay or lm-eval.
        baseline: an earlier run of the same tasks, named likewise, or a baseline file. None: the one that the run's own
            checks name, if it exists.
        score_again: if `baseline` was made by other versions of the packages, score its answers again to see what that
            alone changes. This loads its tasks and their data.
        tasks: the tasks to explain; all if empty.

    Raises:
        FileFormatError: a run is missing or damaged.
        SpecificationError: the run lacks a task of `tasks`.
        JournalError: a run's journal exists but cannot be read.
    """
    with RunSamples(results_file_of(run)) as samples:
        named = _baseline_in_checks(samples) if baseline is None else baseline
        return triage_samples(samples, named, score_again=score_again and baseline is not None, tasks=tasks)


def needs_explanation(checks: Sequence[CheckResult]) -> bool:
    """Whether to explain a run's scores at its end: if a check does not pass, or there are no checks."""
    return not checks or any(check.verdict is not Verdict.PASS for check in checks)


def explain_scores(
    results_file: Path,
    checks: Sequence[CheckResult],
    reader: SampleReader | None = None,
    places: Mapping[str, PlacesByDocument] | None = None,
    tasks: Mapping[str, Task] | None = None,
) -> Triage | None:
    """:func:`triage` for the end of a run. Errors are logged only, so that they cost no results.

    Args:
        results_file: the run's results file.
        checks: the run's checks; if all pass, only certain faults are reported.
        reader: reads the run's samples.
        places: see :class:`RunSamples`.
        tasks: the run's tasks, lm-eval's Task objects, by which repaired answers are scored.
    """
    try:
        with RunSamples(results_file, places) as samples:
            triage = triage_samples(samples, _baseline_in_checks(samples), reader=reader, loaded=tasks)
        return triage if needs_explanation(checks) else _only_faults(triage)
    except Exception as error:
        _log.warning("the scores in %s could not be explained (%s: %s)", results_file, type(error).__name__, error)
        return None


def _only_faults(triage: Triage) -> Triage | None:
    """The triage of a run whose checks all pass: only its certain faults; None if there are none."""
    if not triage.faults:
        return None
    headline = f"every check passes, and yet: {'; '.join(f'{each.title}: {each.evidence}' for each in triage.faults)}"
    return msgspec.structs.replace(triage, headline=headline, findings=triage.faults)


def triage_samples(
    samples: RunSamples,
    baseline: str | Path | None = None,
    *,
    score_again: bool = False,
    reader: SampleReader | None = None,
    tasks: Sequence[str] = (),
    loaded: Mapping[str, Task] | None = None,
) -> Triage:
    """Find out why a run scored as it did; see :func:`triage`."""
    looked_at = metrics_of(samples)
    if missing := [name for name in tasks if name not in looked_at]:
        raise SpecificationError(f"{samples.file} has no task '{missing[0]}'; it has {', '.join(looked_at)}")
    looked_at = {task: key for task, key in looked_at.items() if not tasks or task in tasks}
    metrics = {task: key for task, key in looked_at.items() if key is not None}
    deadline = Deadline(SCORING_SECONDS)
    trials = Trials(lambda: loaded or _loaded_again(samples), looked_at, deadline)
    with deadline.watching():
        facts = list(facts_of_run(samples, looked_at, reader, trials.measure))
    beside = None if baseline is None else baseline_of(Path(baseline), samples, looked_at, score_again=score_again)
    triage = diagnose(Evidence(facts, samples.document, beside, frozenset(metrics.values())))
    return msgspec.structs.replace(triage, run=str(samples.file), metrics=metrics)


def _loaded_again(samples: RunSamples) -> Mapping[str, Task] | None:
    from assay.rescoring.rescore import tasks_of_run  # a run has its tasks, and needs none of this

    return tasks_of_run(samples)


def diagnose(evidence: Evidence) -> Triage:
    """Run all detectors; rank their findings and write the headline."""
    found = _ranked(evidence)
    return Triage(
        baseline=None if evidence.baseline is None else evidence.baseline.source,
        samples=len(evidence.facts),
        score=evidence.score,
        baseline_score=evidence.baseline_score,
        unmet_checks=len(evidence.unmet),
        waterfall=waterfall_of(evidence, found),
        headline=_headline(evidence, found) + _note_on_faults(found) + _note_on_metric(evidence),
        findings=tuple(each.finding for each in found),
    )


def metrics_of(samples: RunSamples) -> dict[str, str | None]:
    """By task to examine, the metric: that of an unmet check, else the first one where more is better.

    None if the task has no such metric, for example because all its samples failed; then only failures are detected.
    """
    document = samples.document
    unmet = [check for check in document.additions.checks or () if check.verdict is not Verdict.PASS]
    below = {leaf: check.metric for check in unmet for leaf in document.leaves(check.task)}
    chosen: dict[str, str | None] = {}
    for task in samples.tasks:
        if below and task not in below:
            continue
        directions, entry = document.higher_is_better.get(task, {}), document.results[task]
        keys = [key for key in score_keys(entry) if directions.get(MetricKey.read(key).metric) is not False]
        wanted = below.get(task)
        # Another metric can replace the check's only if it is a share of right answers.
        chosen[task] = (
            wanted
            if wanted in [*keys, *_of_all_answers(samples, task)]
            else next((key for key in keys if wanted is None or _is_share(entry[key])), None)
        )
    return chosen


def _of_all_answers(samples: RunSamples, task: str) -> list[str]:
    """Metrics of repeats, of which more is better and lm-eval's part of the results knows nothing."""
    return [
        score.metric
        for score in samples.document.additions.scores or ()
        if score.task == task and score.higher_is_better is not False and is_of_repeats(score.metric)
    ]


def _is_share(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value <= 1


def _baseline_in_checks(samples: RunSamples) -> str | None:
    """The baseline of the first check on an examined task whose baseline exists."""
    document, looked_at = samples.document, metrics_of(samples).keys()
    for check in document.additions.checks or ():
        name = check.baseline
        if name and not looked_at.isdisjoint(document.leaves(check.task)) and Path(name).exists():
            return name
    return None


def _ranked(evidence: Evidence) -> list[Found]:
    """Causes by the share of the loss that they can explain, ties in the detectors' order; then remarks."""
    found = [each for detector in _DETECTORS for each in detector(evidence)] if evidence.facts else []
    found += answers_worse(evidence, [each for each in found if each.finding.is_cause])
    found = _weighed_by_own_gains(evidence, found)
    return sorted(found, key=lambda each: (each.finding.is_cause, round(each.finding.weight, 2)), reverse=True)


def _weighed_by_own_gains(evidence: Evidence, found: list[Found]) -> list[Found]:
    """Weigh each cause by what it regains beyond the causes upstream of it."""
    weighed = []
    for each, gains in zip(found, own_gains(evidence, found), strict=True):
        gain = each.finding.explains or 0.0
        if each.finding.is_cause and each.repaired and gain > 0:
            own = min(1.0, fsum(gains.values()) / len(evidence.scored) / gain)
            weighed.append(
                each._replace(finding=msgspec.structs.replace(each.finding, weight=own * each.finding.weight))
            )
        else:
            weighed.append(each)
    return weighed


def _note_on_metric(evidence: Evidence) -> str:
    """A note on which metric was used, if less is better for the metric of an unmet check."""
    others = dict.fromkeys(check.metric for check in evidence.unmet if check not in evidence.unmet_here)
    if not others:
        return ""
    looked_at = f"judged by {', '.join(sorted(evidence.metrics))}" if evidence.metrics else "scores were not looked at"
    return f"; {looked_at}: triage needs a score of which more is better, unlike {', '.join(others)}"


def _gain(evidence: Evidence, finding: Finding) -> str:
    if evidence.unmet and not evidence.unmet_here:
        return ""  # it would read as a gain in the score that was demanded
    if not finding.explains or finding.score is None or finding.score_repaired is None:
        return ""
    about = "" if finding.is_measured else "about "
    return f" (score {finding.score:.3f}, repaired {about}{finding.score_repaired:.3f})"


def _note_on_faults(found: list[Found]) -> str:
    """A note on certain faults, if there is no cause."""
    if any(each.finding.is_cause for each in found):
        return ""
    faults = [each.finding for each in found if each.finding.is_certain_fault]
    return "".join(f"; certain fault: {each.title}: {each.evidence}" for each in faults)


def _headline(evidence: Evidence, found: list[Found]) -> str:
    causes = [each.finding for each in found if each.finding.is_cause]
    if causes and causes[0].cause is Cause.UNEXPLAINED:
        return f"no cause found: {causes[0].title}: {causes[0].evidence}"
    if causes and causes[0].cause is not Cause.ANSWERS_WORSE:
        return f"most probable cause: {causes[0].title}: {causes[0].evidence}{_gain(evidence, causes[0])}"
    if causes:
        return f"no harness cause found: {causes[0].title} than the baseline's: {causes[0].evidence}"
    loss = evidence.loss
    if loss.against is LossReference.BASELINE:
        return (
            f"no harness cause found: no worse than the baseline ({evidence.score:.3f}, {evidence.baseline_score:.3f})"
        )
    if loss.against is LossReference.CHECK:
        if evidence.shortfall <= 0:
            return "no harness cause found: the answers that were scored are no worse than the check demands"
        words = f"the answers themselves fall {evidence.shortfall:.3f} short of what the check demands"
        return f"no harness cause found: {words}"
    if evidence.score is None:
        return (
            "no harness cause found"
            if evidence.unmet
            else "nothing to explain: no sample has a score of which more is better"
        )
    return "no harness cause found"
