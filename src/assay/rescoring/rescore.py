"""Scores a finished run's answers again, without a server: by another filter, a newer task or another release.

Prompts are built anew, as a run would build them now, and matched with the journal's answers. An answer to a prompt
that has changed is scored too, and counted: then the scoring is not the only difference.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.paths import keep_working_directory
from assay._version import __version__
from assay.errors import AssayError, FileFormatError, UnjudgeableError, UnsupportedTaskError, UsageError
from assay.journal.by_document import ResponsesByDocument
from assay.rescoring.recorded_answers import RecordedAnswers
from assay.results.check_results import Verdict
from assay.results.description import marked_stopped_early
from assay.results.document import ResultsDocument, ScoredAgain
from assay.results.provenance import package_versions
from assay.results.writing import aggregate, ensure_writable, model_folder, new_date_id, write_results
from assay.runs.compare import Comparison, compare_rescored
from assay.runs.files import read_run
from assay.runs.samples import RunSamples, results_file_of
from assay.scoring.corrections import corrections
from assay.scoring.deadline import SCORING_SECONDS, Deadline
from assay.scoring.measure import Score, group_weighting, measure, without_intervals
from assay.scoring.task_scores import TaskScores, lines_spool
from assay.tasks.code_eval import verdicts_of
from assay.tasks.library import LoadedTasks, load_tasks
from assay.tasks.lm_eval_lock import lm_eval_lock
from assay.tasks.model_args import model_args
from assay.tasks.settings_check import validate_settings
from assay.types import ModelSpec, Specification, score_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.tasks.protocol import Task


class _Rescoring(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of :func:`score`."""

    tasks: dict[str, str]
    """Tasks of the run, each with the task that scores its answers now; empty: all, each by itself."""
    include_path: str | None
    data_dir: str | None
    output_dir: str | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the results that has changed."""

    task: str
    """The task's or group's name in the run."""
    key: str
    """As in the results file. Standard errors are left out: some of lm-eval's are drawn at random each time."""
    before: float | None
    """None if the run had no such value."""
    now: float | None


class Rescored(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of scoring a run again."""

    run: str
    """The run's results file."""
    scores: tuple[Score, ...]
    differences: tuple[Difference, ...]
    comparison: Comparison | None
    """The run beside its new scores, document by document; None if the run has no samples files."""
    changed_prompts: dict[str, int]
    """By task, how many documents would be asked with another prompt now; without tasks where none would."""
    left_out: dict[str, int]
    """By task, how many documents were asked and have no score now, failed ones included."""
    lost: dict[str, int]
    """By task, how many of these lack answers in the journal: it is damaged, or another run's."""
    versions: dict[str, tuple[str, str]]
    """By package whose version changed, the old version and the new."""
    results_file: Path | None
    """The new results file; None if results are not kept."""

    @property
    def exit_code(self) -> int:
        """Exit code of ``assay score --exit-code``: 1 if a score differs, else 4 if answers are lost, else 0."""
        if self.differences:
            return Verdict.FAIL.exit_code
        return UnjudgeableError.exit_code if self.lost else 0


def score(
    run: str | Path,
    *,
    tasks: Mapping[str, str] | Sequence[str] = (),
    include_path: str | None = None,
    data_dir: str | None = None,
    output_dir: str | None = None,
) -> Rescored:
    """Score the answers in a run's journal again, without a server, and compare with the run's scores.

    With other task YAML, a newer lm-eval or a newer Assay, this shows what the harness alone changes.

    Args:
        run: a results file, or a folder of results (its newest run).
        tasks: only these tasks of the run; in a mapping, each with the task that scores its answers now. Empty: all
            tasks, each by itself.
        include_path: a folder of task YAML, in place of the run's; it may run code.
        data_dir: the folder with data sets, in place of the run's.
        output_dir: where results and samples files go; None: they are not kept.

    Raises:
        UsageError: the run has no such task, or a task cannot be loaded.
        FileFormatError: the run was not made by Assay, or its journal is missing.
        JournalError: the journal cannot be read.
    """
    renamed = dict(tasks) if isinstance(tasks, Mapping) else {name: name for name in tasks}
    rescoring = _Rescoring(tasks=renamed, include_path=include_path, data_dir=data_dir, output_dir=output_dir)
    with lm_eval_lock("score"), RunSamples(results_file_of(run)) as samples:
        return _rescore(samples, rescoring)


def _rescore(run: RunSamples, rescoring: _Rescoring) -> Rescored:
    specification = _specification_of(run, rescoring)
    names = _names(run, specification, rescoring)
    loaded = load_tasks(list(names.values()), specification.options, model_args(specification.model))
    validate_settings(loaded.tasks)
    recorded_as = {now: then for then, now in names.items() if now in loaded.tasks}
    with _journal_of(run) as journal, _results_folder(specification, rescoring) as folder, lines_spool(folder) as spool:
        counted, scored = _is_counted(run, specification), _is_scored(run, specification)
        answers = RecordedAnswers(specification, journal, recorded_as, counted, scored)
        with verdicts_of(loaded.tasks) as (verdicts, _):
            deadline = Deadline(SCORING_SECONDS)
            scores = {
                name: TaskScores(name, task, spool, deadline, verdicts.get(name)) for name, task in loaded.tasks.items()
            }
            with keep_working_directory(), deadline.watching():
                answers.score(scores)
        document, measured = _document(run, specification.model, loaded, scores, _origin(run, folder, answers))
        written = write_results(folder, new_date_id(folder), document, scores)
        comparison = _compare_with_run(run.file, written, recorded_as) if specification.log_samples else None
        if comparison is not None and rescoring.output_dir is None:
            comparison = _without_temporary_file(comparison, written)
    return Rescored(
        run=str(run.file),
        scores=measured,
        differences=tuple(_differences(run.document.results, document.results, recorded_as)),
        comparison=comparison,
        changed_prompts=dict(answers.changed_prompts),
        left_out={name: count for name, count in answers.left_out(scores).items() if count},
        lost=dict(answers.lost),
        versions=_changed_versions(run),
        results_file=None if rescoring.output_dir is None else written,
    )


def tasks_of_run(run: RunSamples) -> Mapping[str, Task] | None:
    """The run's tasks, loaded as the run loaded them; None if they or their data cannot be loaded here."""
    as_then = _Rescoring(tasks={}, include_path=None, data_dir=None, output_dir=None)
    try:
        specification = _specification_of(run, as_then)
        with lm_eval_lock("triage"):
            loaded = load_tasks(list(specification.tasks), specification.options, model_args(specification.model))
    except AssayError:
        return None
    return loaded.tasks


def _specification_of(run: RunSamples, rescoring: _Rescoring) -> Specification:
    recorded = run.document.provenance.specification
    if recorded is None:
        raise FileFormatError(f"{run.file} was not made by an Assay run: there are no recorded answers to score")
    try:
        specification = msgspec.convert(recorded, Specification)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise FileFormatError(f"{run.file}: its specification cannot be read ({error})") from error
    asked = {"include_path": rescoring.include_path, "data_dir": rescoring.data_dir}
    options = msgspec.structs.replace(
        specification.options, **{name: value for name, value in asked.items() if value is not None}
    )
    return msgspec.structs.replace(specification, options=options)


def _names(run: RunSamples, specification: Specification, rescoring: _Rescoring) -> dict[str, str]:
    """The tasks to load: those asked for, each with the one that scores it now; else those of the run."""
    if unknown := [name for name in rescoring.tasks if name not in run.tasks]:
        raise UsageError(f"{run.file} has no task '{unknown[0]}'; it has {', '.join(run.tasks)}")
    return dict(rescoring.tasks) or {name: name for name in specification.tasks}


def _is_counted(run: RunSamples, specification: Specification) -> Callable[[str, int], bool]:
    if not specification.log_samples:
        return lambda _, __: True
    documents = {name: frozenset(run.doc_ids(name)) for name in run.tasks}
    return lambda name, doc_id: doc_id in documents.get(name, ())


def _is_scored(run: RunSamples, specification: Specification) -> Callable[[str, int], bool]:
    if run.document.additions.early_stopping is not None and not specification.log_samples:
        return lambda _, __: False  # the run did not record which were asked
    return lambda name, doc_id: not run.has_failed(name, doc_id)


@contextmanager
def _journal_of(run: RunSamples) -> Iterator[ResponsesByDocument]:
    if run.journal is None:
        raise FileFormatError(f"the journal of {run.file} is not beside it: there are no recorded answers to score")
    with ResponsesByDocument(run.journal) as journal:
        yield journal


@contextmanager
def _results_folder(specification: Specification, rescoring: _Rescoring) -> Iterator[Path]:
    if rescoring.output_dir is None:
        with tempfile.TemporaryDirectory(prefix="assay-score-") as scratch:
            yield Path(scratch)
        return
    folder = model_folder(rescoring.output_dir, specification.model.model)
    ensure_writable(folder)
    yield folder


def _document(
    run: RunSamples,
    model: ModelSpec,
    loaded: LoadedTasks,
    scores: Mapping[str, TaskScores],
    rescored: ScoredAgain,
) -> tuple[ResultsDocument, tuple[Score, ...]]:
    """The run's results document with all scores replaced, and the scores."""
    if not any(found.scored for found in scores.values()):
        failed = next((sample for found in scores.values() for sample in found.failed_samples()), None)
        if failed is None:
            raise UnsupportedTaskError(f"no document of {', '.join(scores)} has an answer in the journal of {run.file}")
        raise UnsupportedTaskError(
            f"no document of {', '.join(scores)} can be scored; the first, {failed.task} {failed.doc_id}: "
            f"{failed.message}"
        )
    scored, stopped_early = aggregate(scores, loaded), run.document.additions.early_stopping
    measured = measure(scored.results, scores, loaded)
    if stopped_early is not None:
        measured = without_intervals(measured, stopped_early.complete_tasks)
        scored = marked_stopped_early(scored, stopped_early)
    versions = package_versions()
    additions = msgspec.structs.replace(
        run.document.additions,
        scores=measured,
        corrections=corrections(scores, model),
        checks=None,
        failures=tuple(failed for found in scores.values() for failed in found.failed_samples()),
        fallbacks={name: found.fallbacks for name, found in scores.items()},
        provenance=msgspec.structs.replace(run.document.provenance, versions=versions, data=loaded.data_files),
        weighted_by_size=group_weighting(loaded),
        evidence=None,
        triage=None,
        rescored=rescored,
    )
    document = msgspec.structs.replace(
        run.document,
        **msgspec.structs.asdict(scored),
        task_hashes={name: found.task_hash() for name, found in scores.items()},
        lm_eval_version=versions["lm_eval"],
        assay=additions,
    )
    return document, measured


def _origin(run: RunSamples, folder: Path, answers: RecordedAnswers) -> ScoredAgain:
    journal = run.journal
    return ScoredAgain(
        run=run.file.name,
        journal=None if journal is None else os.path.relpath(journal, folder),
        tasks=dict(answers.recorded_as),
        changed_prompts=dict(answers.changed_prompts),
    )


def _compare_with_run(before: Path, now: Path, recorded_as: Mapping[str, str]) -> Comparison:
    run = read_run(now)
    under_old_names = {
        recorded_as.get(name, name): msgspec.structs.replace(task, name=recorded_as.get(name, name))
        for name, task in run.tasks.items()
    }
    return compare_rescored(read_run(before), msgspec.structs.replace(run, tasks=under_old_names))


def _without_temporary_file(comparison: Comparison, written: Path) -> Comparison:
    """The comparison, without the name of a file that is about to be deleted."""
    words = "the same answers, scored again"
    remarks = tuple(remark.replace(str(written), words) for remark in comparison.remarks)
    return msgspec.structs.replace(comparison, candidate=words, remarks=remarks)


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], recorded_as: Mapping[str, str]
) -> Iterator[Difference]:
    for name, entry in now.items():
        then = recorded_as.get(name, name)
        recorded = before.get(then, {})
        for key in dict.fromkeys([*score_keys(recorded), *score_keys(entry)]):
            old, value = _number(recorded.get(key)), _number(entry.get(key))
            if old != value and not (old != old and value != value):
                yield Difference(task=then, key=key, before=old, now=value)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _changed_versions(run: RunSamples) -> dict[str, tuple[str, str]]:
    recorded = run.document.provenance.versions or {}
    now = {**package_versions(), "assay": __version__}
    return {
        name: (recorded[name], version)
        for name, version in now.items()
        if name in recorded and recorded[name] != version
    }
