"""Reads finished runs from result files of Assay or lm-eval, and from baselines.

A run is named by a results file, a samples file, a baseline file, a model's folder or an output directory. A folder
means its newest run.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.client.request_shape import request_settings
from assay.errors import FileFormatError
from assay.results.document import ResultsDocument
from assay.results.reading import read_results
from assay.results.sample_files import (
    SampleLine,
    filter_of,
    read_lines,
    reading,
    repeats_of,
    samples_file_of,
    task_of,
    time_stamp,
    value_of,
)
from assay.runs.pairing import REQUESTS
from assay.runs.record import (
    GroupRecord,
    Part,
    RecordedRun,
    Score,
    TaskRecord,
    document_hash,
    mean,
    prompt_hash,
    score_of,
)
from assay.scoring.measure import number_at
from assay.tasks.repeats import base_metric
from assay.types import MetricKey, ModelSpec, score_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""A memory address: part of the ``repr`` that lm-eval writes for Python functions in a task."""
_USUAL_FOLDER = "results"
_RESULTS = "results_*.json"
_LAST = re.compile(r"last(?:~(\d+))?")
_TIME = re.compile(r"20\d\d-\d\d")
_HASH = re.compile("[0-9a-f]{8,}")
_COMPARED_SETTINGS = ("output_type", "repeats", "generation_kwargs", "filter_list", "metric_list", "process_results")
"""Entries of a task's configuration that change scores. Changes to prompts show in their hashes."""


def read_run(path: str | Path) -> RecordedRun:
    """Read the run that `path` names.

    Raises:
        FileFormatError: there is no such run, the name fits several, or a file is damaged.
    """
    place = named_run(path)
    if place.is_dir():
        return _read_results_run(newest_results(place))
    if not place.exists():
        raise FileFormatError(f"there is no run {path}: name a results file, a folder of results or a baseline")
    if place.name.endswith(".jsonl"):
        return _read_samples_run(place)
    from assay.runs.baseline import is_baseline, load_baseline

    return load_baseline(place) if is_baseline(place) else _read_results_run(place)


def named_run(path: str | Path) -> Path:
    """The path of the run with a name.

    A name is a path, or ``last``, ``last~1`` (the one before) and so on, or the beginning of a run's time
    (``2026-12-01T05``). These mean the runs in ``results``; ``DIR/last`` means those in another folder.

    Raises:
        FileFormatError: the name is not a path and fits no run, or several.
    """
    place = Path(path)
    if place.exists():
        return place
    folder = place.parent if len(place.parts) > 1 else Path(_USUAL_FOLDER)
    if (last := _LAST.fullmatch(place.name)) is None and not _TIME.match(place.name):
        return place
    files = sorted(results_files(folder), key=lambda file: file.name, reverse=True)
    if last is not None:
        number = int(last[1] or 0)
        if number >= len(files):
            raise FileFormatError(
                f"there is no run {path}: {folder} holds {len(files)}; assay runs {folder} lists them"
            )
        return files[number]
    meant = [file for file in files if (time_stamp(file) or "").startswith(place.name)]
    if len(meant) != 1:
        raise FileFormatError(
            f"{len(meant) or 'no'} runs in {folder} are of {place.name}; assay runs {folder} lists all there are"
        )
    return meant[0]


def results_files(folder: Path) -> list[Path]:
    """The results files in a folder and its direct subfolders."""
    return [*folder.glob(_RESULTS), *folder.glob(f"*/{_RESULTS}")]


def newest_results(folder: Path) -> Path:
    """The newest results file of a model's folder, or of an output directory with a single model.

    Raises:
        FileFormatError: there is none, or there are runs of several models.
    """
    holding = {file.parent for file in results_files(folder)}
    if folder in holding:
        holding = {folder}
    if not holding:
        raise FileFormatError(f"there is no run in {folder}: no results_*.json there or one folder below")
    if len(holding) > 1:
        names = ", ".join(sorted(str(found) for found in holding))
        raise FileFormatError(f"{folder} holds runs of several models; name one of {names}")
    return max(holding.pop().glob("results_*.json"), key=lambda file: file.name)


def stopped_early_remark(place: str | Path) -> str | None:
    """A remark if `place` is a folder whose newest run was stopped early; None otherwise.

    Gates and runs of one model share a folder, so a user who names it may expect an earlier, whole run.

    Raises:
        FileFormatError: the folder has no run, or runs of several models.
    """
    folder = Path(place)
    if not folder.is_dir() or not _was_stopped_early(newest := newest_results(folder)):
        return None
    return f"the newest run there is {newest}, which was stopped early{whole_run_hint(newest)}"


def whole_run_hint(file: str | Path) -> str:
    """The end of a message: the newest whole run in a results file's folder; empty if there is none."""
    newest_first = sorted(Path(file).parent.glob("results_*.json"), key=lambda file: file.name, reverse=True)
    whole = next((file for file in newest_first if _is_whole(file)), None)
    return "" if whole is None else f"; the newest whole run there is {whole}"


def _is_whole(file: Path) -> bool:
    try:
        return not _was_stopped_early(file)
    except FileFormatError:  # damaged, but nobody asked for this file
        return False


def _was_stopped_early(file: Path) -> bool:
    return read_results(file).additions.early_stopping is not None


def _read_results_run(file: Path) -> RecordedRun:
    document = read_results(file)
    names = [name for name in document.configs or document.results if name in document.results]
    tasks = {name: _task(name, document, samples_file_of(file, name)) for name in names}
    return RecordedRun(
        source=str(file),
        model=document.model_name or "?",
        date=time_stamp(file) or "",
        versions=_versions(document),
        tasks=tasks,
        groups=_groups(document, tasks),
        stopped_early=document.additions.early_stopping is not None,
        journal=document.provenance.journal,
    )


def _read_samples_run(file: Path) -> RecordedRun:
    """Read a samples file as a run of its one task, with the results file of the same run if there is one."""
    stamp = time_stamp(file)
    results = file.with_name(f"results_{stamp}.json") if stamp else None
    task_name = task_of(file)
    if results is not None and results.exists():
        run = _read_results_run(results)
        if task_name in run.tasks:
            return msgspec.structs.replace(run, source=str(file), tasks={task_name: run.tasks[task_name]}, groups={})
    task = _task(task_name, ResultsDocument(results={task_name: {}}), file)
    return RecordedRun(source=str(file), model="?", date=stamp or "", tasks={task_name: task})


def _versions(document: ResultsDocument) -> dict[str, str]:
    versions = {"lm_eval": str(document.lm_eval_version or "?")}
    if document.provenance.versions is not None:
        versions["assay"] = document.provenance.versions.get("assay", "?")
    return versions


def _task(name: str, document: ResultsDocument, samples_file: Path) -> TaskRecord:
    values = _values(document.results[name])
    directions = document.higher_is_better.get(name, {})
    failures = document.additions.failures or ()
    failed = tuple(sorted(failure.doc_id for failure in failures if failure.task == name))
    samples = _Samples.read(samples_file, may_be_missing=document.scored_nothing(name))
    _refuse_incomplete(samples, document, name, samples_file)
    scores = {key: found for key, found in samples.scores().items() if _is_mean_of(found, values.get(key))}
    return TaskRecord(
        name=name,
        settings=_settings(name, document),
        doc_ids=tuple(samples.doc_ids),
        documents=tuple(samples.documents),
        prompts=tuple(samples.prompts),
        failed=failed,
        part=_part(name, document, len(samples.doc_ids) + len(failed)),
        scores=scores,
        values=values,
        higher_is_better={
            key: directions[metric]
            for key in [*values, *scores]
            if isinstance(directions.get(metric := base_metric(MetricKey.read(key).metric)), bool)
        },
        samples_file=str(samples_file),
    )


def _part(name: str, document: ResultsDocument, held: int) -> Part | None:
    count = document.n_samples.get(name)
    population = None if count is None else count.original
    if population is None or held >= population:
        return None
    if document.additions.early_stopping is not None:
        return Part(held=held, population=population, why="stopped early")
    limit = None if document.config is None else document.config.limit
    return None if limit is None else Part(held=held, population=population, why=f"--limit {limit:g}")


def _settings(name: str, document: ResultsDocument) -> dict[str, Any]:
    config = document.configs.get(name)
    if config is None:
        return {}
    return comparable_settings(config, document.versions.get(name), _request_settings(document))


def _request_settings(document: ResultsDocument) -> dict[str, Any] | None:
    provenance = document.additions.provenance
    if provenance is None or not provenance.model:
        return None
    try:
        return request_settings(msgspec.convert(provenance.model, ModelSpec))
    except msgspec.ValidationError:  # another release's, which may know other settings
        return None


def comparable_settings(
    config: Mapping[str, Any], version: Any, requests: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The part of a task's configuration that must be equal for scores to be comparable.

    Args:
        config: the task's entry under ``configs``, as plain data.
        version: the task's version.
        requests: what is done to its requests beside that (:func:`assay.client.request_shape.request_settings`); None
            where that is not known.
    """
    settings = {"version": version, **{key: config[key] for key in _COMPARED_SETTINGS if config.get(key) is not None}}
    without_addresses: dict[str, Any] = json.loads(_ADDRESS.sub("", json.dumps(settings)))
    return without_addresses if requests is None else {**without_addresses, REQUESTS: dict(requests)}


def _refuse_incomplete(samples: _Samples, document: ResultsDocument, name: str, file: Path) -> None:
    """Refuse a samples file of Assay's that lacks lines or belongs to another run than the results file."""
    count = document.n_samples.get(name)
    # It may have more: documents to which no metric gives a score.
    if document.assay and samples.doc_ids and count and count.effective > len(samples.doc_ids):
        raise FileFormatError(
            f"{file} has {len(samples.doc_ids)} documents, and its results file says {count.effective}: "
            "it is damaged, or of another run"
        )


def _is_mean_of(scores: Sequence[Score], value: float | None) -> bool:
    """Whether a metric is the mean of the documents' scores; others (BLEU, perplexity) cannot be compared by document.

    The tolerance allows for tasks that average in single precision.
    """
    return value is None or isclose(mean(scores), value, rel_tol=1e-6, abs_tol=1e-12)


class _Samples:
    """The documents of a samples file: hashes, and scores by metric key."""

    def __init__(self) -> None:
        self.doc_ids: list[int] = []
        self.documents: list[str] = []
        self.prompts: list[str] = []
        self._found: dict[str, dict[int, Score | None]] = {}

    @classmethod
    def read(cls, file: Path, *, may_be_missing: bool) -> _Samples:
        samples = cls()
        if may_be_missing and not file.exists():
            return samples
        identities: dict[int, tuple[str, str]] = {}
        for number, line in enumerate(read_lines(file), 1):
            with reading(file, f"line {number}"):
                samples._take(line, identities)
        samples.doc_ids = sorted(identities)
        samples.documents = [identities[doc_id][0] for doc_id in samples.doc_ids]
        samples.prompts = [identities[doc_id][1] for doc_id in samples.doc_ids]
        return samples

    def _take(self, line: SampleLine, identities: dict[int, tuple[str, str]]) -> None:
        doc_id = int(value_of(line, "doc_id"))
        if doc_id not in identities:
            doc, prompt, target = (_hash(line, f"{name}_hash") for name in ("doc", "prompt", "target"))
            identities[doc_id] = (document_hash(doc, target), prompt_hash(prompt))
        values = {metric: value_of(line, metric) for metric in value_of(line, "metrics")}
        for metric, value in {**values, **repeats_of(line)}.items():
            key = str(MetricKey(metric, filter_of(line)))
            by_document = self._found.setdefault(key, {})
            if doc_id in by_document:
                raise ValueError(f"document {doc_id} has a second line of the same filter")
            by_document[doc_id] = score_of(value)

    def scores(self) -> dict[str, tuple[Score, ...]]:
        """By metric key, the scores; only metrics for which every document has a score that can be averaged."""
        found = {}
        for key, by_document in self._found.items():
            scores = [by_document.get(doc_id) for doc_id in self.doc_ids]
            known = tuple(score for score in scores if score is not None)
            if len(known) == len(scores):
                found[key] = known
        return found


def _hash(line: SampleLine, key: str) -> str:
    value = value_of(line, key)
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ValueError(f"{key} is no hash")
    return value


def _groups(document: ResultsDocument, tasks: Mapping[str, TaskRecord]) -> dict[str, GroupRecord]:
    recorded = document.additions.weighted_by_size or {}
    groups = {}
    for name, entry in document.results.items():
        if name in tasks or not document.group_subtasks.get(name):
            continue
        values, tasks_below = _values(entry), tuple(document.leaves(name))
        weighting = {
            key: recorded.get(name, {}).get(key, _weighted_by_size(tasks_below, tasks, key, value))
            for key, value in values.items()
        }
        known = {key: by_size for key, by_size in weighting.items() if by_size is not None}
        groups[name] = GroupRecord(tasks=tasks_below, weighted_by_size=known, values=values)
    return groups


def _weighted_by_size(names: Sequence[str], tasks: Mapping[str, TaskRecord], key: str, value: float) -> bool | None:
    """Which of lm-eval's two aggregates equals the group's value: True for the one by size; None if neither does."""
    parts = [tasks[name] for name in names if name in tasks and key in tasks[name].values and tasks[name].doc_ids]
    if not parts:
        return None
    sizes = Counter({part.name: len(part.doc_ids) for part in parts})
    by_size = sum(part.values[key] * sizes[part.name] for part in parts) / sizes.total()
    plain = sum(part.values[key] for part in parts) / len(parts)
    if isclose(by_size, value, rel_tol=1e-9, abs_tol=1e-12):
        return True
    return False if isclose(plain, value, rel_tol=1e-9, abs_tol=1e-12) else None


def _values(entry: Mapping[str, Any]) -> dict[str, float]:
    return {key: value for key in score_keys(entry) if (value := number_at(entry, key)) is not None}
