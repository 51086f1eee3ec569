"""Detects a changed harness: the baseline's own answers, scored again, have other scores than before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import Found, Suspicion, is_material, judge, share_of_loss
from assay.errors import AssayError
from assay.results.provenance import package_versions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.diagnosis.evidence import Evidence
    from assay.runs.samples import RunSamples

_log = logging.getLogger(__name__)


def harness_changed(evidence: Evidence) -> Iterator[Found]:
    """The part of the loss that the baseline's own answers also have when they are scored again."""
    before = evidence.baseline
    if before is None or not before.scored_now:
        return
    affected = [sample for sample in evidence.scored if sample.task in before.scored_now]
    if not affected or evidence.score is None:
        return
    shift = sum(now - then for then, now in (before.scored_now[sample.task] for sample in affected))
    gain = max(0.0, -shift / len(evidence.scored))
    words = "; ".join(f"{task} {then:.3f} -> {now:.3f}" for task, (then, now) in list(before.scored_now.items())[:3])
    found = judge(
        evidence,
        Suspicion(
            cause=Cause.HARNESS_CHANGED,
            evidence=f"the baseline's own answers, scored again now: {words}",
            advice="make a new baseline with this version, or run with the baseline's; 'assay score' shows each answer",
            affected=affected,
            of=len(evidence.scored),
            confidence=Confidence.CERTAIN,
        ),
    )
    finding = msgspec.structs.replace(
        found.finding,
        is_cause=is_material(evidence, gain),
        weight=share_of_loss(evidence, gain),
        score_without=None,
        score_repaired=evidence.score + gain,
    )
    yield found._replace(finding=finding)


def scored_again(baseline: RunSamples, run: RunSamples, metrics: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """By task, the baseline's old and new scores, if they differ.

    The baseline is scored again only if the installed packages made the run, others made the baseline, and the
    baseline's journal exists.
    """
    from assay.rescoring.rescore import score

    then, ours = _versions(baseline), _versions(run)
    if baseline.journal is None or not then or then == ours or ours != package_versions():
        return {}
    try:
        differences = score(baseline.file).differences
    except AssayError as error:
        _log.info("the baseline's answers could not be scored again: %s", error)
        return {}
    return {
        each.task: (each.before, each.now)
        for each in differences
        if metrics.get(each.task) == each.key and each.before is not None and each.now is not None
    }


def _versions(samples: RunSamples) -> dict[str, str]:
    return samples.document.provenance.versions or {}
