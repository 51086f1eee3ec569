"""Detects differences from the baseline: in task, data, prompts, settings or the version of lm-eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.diagnosis.causes import Cause
from assay.diagnosis.findings import Confidence
from assay.diagnosis.judging import Found, Suspicion, as_remark, judge

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.diagnosis.evidence import Evidence

_SAMPLING = ("generation_kwargs.temperature", "generation_kwargs.do_sample", "generation_kwargs.top_")
_TASKS_SHOWN = 3
_ADVICE = {
    Cause.DATA_CHANGED: "use the baseline's data (--data-dir), or make a new baseline",
    Cause.PROMPTS_CHANGED: "compare one prompt of each run: few-shot examples, system prompt, chat or completions",
    Cause.NOT_GREEDY: "ask as the baseline did (--gen-kwargs temperature=0)",
    Cause.TASK_CHANGED: "run with the baseline's task version and settings, or make a new baseline",
}


def mismatches(evidence: Evidence) -> Iterator[Found]:
    """Settings, documents and prompts that differ from the baseline's."""
    if evidence.baseline is None:
        return
    mismatches_by_cause: dict[Cause, dict[str, list[str]]] = {}
    for task, differences in evidence.baseline.mismatches.items():
        for each in differences:
            mismatches_by_cause.setdefault(_cause_of(each), {}).setdefault(task, []).append(each)
    for cause, by_task in mismatches_by_cause.items():
        affected = [sample for sample in evidence.scored if sample.task in by_task]
        yield judge(
            evidence,
            Suspicion(
                cause=cause,
                evidence=_by_task({task: ", ".join(words) for task, words in by_task.items()}),
                advice=_ADVICE[cause],
                affected=affected,
                of=len(evidence.scored),
                confidence=Confidence.LIKELY,
            ),
        )


def baseline_is_part(evidence: Evidence) -> Iterator[Found]:
    """The baseline was stopped early or limited, and the run asked more."""
    if evidence.baseline is None or not evidence.baseline.partial:
        return
    partial = evidence.baseline.partial
    affected = [sample for sample in evidence.scored if sample.task in partial]
    suspicion = Suspicion(
        cause=Cause.BASELINE_PARTIAL,
        evidence=_by_task(partial),
        advice="only documents that both runs asked are compared; a baseline of a whole run tells of all",
        affected=affected,
        of=len(evidence.scored),
        confidence=Confidence.CERTAIN,
        may_be_cause=False,
    )
    yield judge(evidence, suspicion)


def _by_task(words: Mapping[str, str]) -> str:
    """A message for each task; of many tasks, for the first few."""
    shown = "; ".join(f"{task}: {said}" for task, said in list(words.items())[:_TASKS_SHOWN])
    return shown + (f"; and {len(words) - _TASKS_SHOWN} tasks more" if len(words) > _TASKS_SHOWN else "")


def _cause_of(mismatch: str) -> Cause:
    if mismatch.startswith("data:"):
        return Cause.DATA_CHANGED
    if mismatch.startswith("prompts:"):
        return Cause.PROMPTS_CHANGED
    return Cause.NOT_GREEDY if mismatch.startswith(_SAMPLING) else Cause.TASK_CHANGED


def other_lm_eval(evidence: Evidence) -> Iterator[Found]:
    """lm-eval's version differs."""
    ours = str(evidence.document.lm_eval_version or "?")
    theirs = "?" if evidence.baseline is None else evidence.baseline.lm_eval
    if "?" in (ours, theirs) or ours == theirs:
        return
    suspicion = Suspicion(
        cause=Cause.LM_EVAL_CHANGED,
        evidence=f"{ours}, in the baseline {theirs}",
        advice="look at lm-eval's changes to these tasks between the two, or make a new baseline",
        affected=evidence.scored,
        of=len(evidence.scored),
        confidence=Confidence.POSSIBLE,
    )
    yield as_remark(judge(evidence, suspicion))


def sampled(evidence: Evidence) -> Iterator[Found]:
    """Answers are sampled, so the score varies from run to run."""
    affected = [sample for sample in evidence.scored if sample.temperature > 0]
    if not affected:
        return
    warmest = max(sample.temperature for sample in affected)
    suspicion = Suspicion(
        cause=Cause.NOT_GREEDY,
        evidence=f"temperature {warmest:g}: the score varies from run to run",
        advice="'assay calibrate' measures by how much; temperature 0 takes the chance out",
        affected=affected,
        of=len(evidence.scored),
        confidence=Confidence.CERTAIN,
        may_be_cause=False,
    )
    yield judge(evidence, suspicion)
