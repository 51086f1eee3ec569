"""Faults planted in runs of real tasks, on their own documents: the first line names each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.diagnosis import Cause, Finding
from assay.diagnosis.run import triage
from benchmarks.triage.matrix import Bench, Cell, faulty
from benchmarks.triage.running import run

DOCUMENTS = 60


@pytest.fixture(scope="module")
def first(
    data_dir: Path, tmp_path_factory: pytest.TempPathFactory, module_monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str, int, bool], Finding | None]:
    """The first cause that is named for a fault in a task, at a strength, with or without a baseline."""
    module_monkeypatch.setenv("ASSAY_DATA_DIR", str(data_dir))
    benches: dict[str, Bench] = {}

    def found(form: str, task: str, strength: int, has_baseline: bool) -> Finding | None:
        if task not in benches:
            benches[task] = Bench.of(task, tmp_path_factory.mktemp(task), DOCUMENTS)
        bench, cell = benches[task], Cell(form, task, strength)
        folder = tmp_path_factory.mktemp("run")
        ran = run(folder, bench.task, faulty(bench.task, bench.model, cell), target=cell.fault.target)
        causes = triage(ran, bench.baseline if has_baseline else None, score_again=False).causes
        return causes[0] if causes else None

    return found


@pytest.fixture(scope="module")
def module_monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.mark.parametrize(
    ("form", "task", "strength", "cause"),
    [
        ("empty", "gsm8k", 1, Cause.EMPTY),
        ("tool calls", "mmlu_pro", 1, Cause.EMPTY),
        ("Chinese", "gsm8k", 1, Cause.WRONG_LANGUAGE),
        ("Chinese", "nq_open", 2, Cause.WRONG_LANGUAGE),
        ("refusal", "nq_open", 1, Cause.REFUSED),
        ("rubbish", "nq_open", 1, Cause.GIBBERISH),
        ("temperature 2", "gsm8k", 1, Cause.GIBBERISH),
        ("server's cap as stop", "gsm8k", 2, Cause.TRUNCATED),
        ("server's cap as stop", "mmlu_pro", 1, Cause.TRUNCATED),
        ("degrades half-way", "gsm8k", 2, Cause.ONE_TIME_SPAN),
        ("constant answer", "mmlu_pro", 1, Cause.SAME_ANSWER),
        ("boxed", "nq_open", 1, Cause.EXTRACTION_MISSED),
    ],
)
@pytest.mark.parametrize("has_baseline", [True, False])
def test_a_fault_is_named_with_and_without_a_baseline(
    first: Callable[..., Finding | None], form: str, task: str, strength: int, cause: Cause, has_baseline: bool
) -> None:
    finding = first(form, task, strength, has_baseline)

    assert finding is not None
    assert finding.cause is cause, finding.evidence


@pytest.mark.parametrize(
    ("form", "task", "strength", "cause", "words"),
    [
        ("system prompt ignored", "bbh", 0, Cause.SYSTEM_PROMPT_IGNORED, "by the length of their system prompts"),
        ("targets rewritten", "gsm8k", 0, Cause.DATA_CHANGED, "have another right answer than in the baseline"),
        ("answers swapped", "mmlu_pro", 1, Cause.SWAPPED, "what the baseline answered to a neighbouring document"),
        ("answers swapped", "nq_open", 2, Cause.SWAPPED, "what the baseline answered to a neighbouring document"),
        ("in a code fence", "nq_open", 1, Cause.OTHER_FORM, "answers contain '`'"),
        ("think without opening", "nq_open", 1, Cause.OTHER_FORM, "answers "),
        ("limit too small", "bbh", 2, Cause.TRUNCATED, "answers are cut off"),
    ],
)
def test_a_fault_that_a_baseline_shows(
    first: Callable[..., Finding | None], form: str, task: str, strength: int, cause: Cause, words: str
) -> None:
    finding = first(form, task, strength, True)

    assert finding is not None
    assert finding.cause is cause, finding.evidence
    assert words in finding.evidence


def test_sound_answers_that_got_worse_are_said_to_be_so_with_the_kind_of_loss(
    first: Callable[..., Finding | None],
) -> None:
    finding = first("weaker model", "gsm8k", 2, True)

    assert finding is not None
    assert finding.cause is Cause.ANSWERS_WORSE
    assert "all over the run; " in finding.evidence
    assert "wrong numbers are near misses" in finding.evidence
