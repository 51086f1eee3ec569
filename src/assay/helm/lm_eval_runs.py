"""Writes runs of lm-eval's tasks as HELM's run directories, so that HELM's tools can show them.

Each task becomes a run. lm-eval's metrics become statistics with lm-eval's values; nothing is scored again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import FewerStatisticsError, NothingMeasuredError
from assay.helm.adaptation import ScenarioState
from assay.helm.lm_eval_states import CHOICES, adapter_spec, method_of, request_states
from assay.helm.metrics.registry import LM_EVAL_SCORES
from assay.helm.options import suite_folder
from assay.helm.run_directory import RunFiles, write_scored_run
from assay.helm.run_spec import MetricSpec, RunSpec
from assay.helm.running.runs import helm_name, safe_name
from assay.helm.scenario import Scenario, ScenarioSpec
from assay.helm.schema import SCHEMA, write_schema
from assay.helm.stats import MetricName, Moments, PerInstanceStats, Stat
from assay.results.sample_files import reading, samples_file_of
from assay.runs.record import mean
from assay.runs.samples import RunSamples, results_file_of
from assay.types import MetricKey, score_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.helm.adaptation import AdapterSpec, RequestState
    from assay.helm.structs import Number
    from assay.results.document import ResultsDocument
    from assay.runs.samples import RunSample

SUITE = "assay"


@dataclass
class _Task:
    """Collects a task's samples as HELM's records."""

    name: str
    names: Mapping[MetricKey, str]
    """The statistic's name for each metric and filter."""
    split: str
    spec: AdapterSpec
    method: str
    states: list[RequestState] = field(default_factory=list)
    records: list[PerInstanceStats] = field(default_factory=list)
    extra: dict[str, Moments] = field(default_factory=lambda: defaultdict(Moments))

    def add(self, sample: RunSample) -> None:
        """Add a sample that has a score."""
        self.states += request_states(sample, self.method, self.spec, self.split)
        stats = [Stat.of(self._name(name), value) for name, value in self._scores(sample)]
        for name, value in _bookkeeping(sample, self.method):
            self.extra[name].add(value)
            stats.append(Stat.of(self._name(name), value))
        self.records.append(PerInstanceStats(instance_id=f"id{sample.doc_id}", train_trial_index=0, stats=stats))

    def aggregated(self, values: Mapping[str, Any]) -> list[Stat]:
        """The run's statistics: lm-eval's values, and the means of token counts and times."""
        stats = [
            Stat.of(self._name(name), values[str(key)])
            for key, name in self.names.items()
            if isinstance(values.get(str(key)), int | float)
        ]
        return stats + [Stat.of(self._name(name), moments.mean) for name, moments in self.extra.items()]

    def _scores(self, sample: RunSample) -> Iterator[tuple[str, float]]:
        for kind, filtered in sample.filters.items():
            for metric, score in filtered.metrics.items():
                if (name := self.names.get(MetricKey(metric, kind))) is not None:
                    yield name, mean([score])

    def _name(self, name: str) -> MetricName:
        return MetricName(name, self.split)


def export(
    run: str | Path, output_dir: str | Path = "benchmark_output", suite: str = SUITE, *, allow_fewer: bool = False
) -> tuple[Path, ...]:
    """Write a finished run's tasks as HELM's runs, and a schema for ``helm-summarize``.

    Samples that failed are left out: they have no score, and their prompts are not kept.

    Args:
        run: a run of Assay or lm-eval: a results file, a samples file or a folder of results (its newest run).
        output_dir: HELM's output path.
        suite: the runs are written to ``runs/<suite>/`` in it.
        allow_fewer: replace existing statistics even if the new ones are fewer.

    Returns:
        The runs' directories.

    Raises:
        FileFormatError: a file of the run is missing or damaged.
        NothingMeasuredError: no sample has a score.
        OutputError: the directories cannot be written.
        FewerStatisticsError: some would lose statistics; the others are written.
    """
    output_path = Path(output_dir)
    folder = suite_folder(output_path, suite)
    results_file = results_file_of(run)
    written: list[Path] = []
    refused: list[FewerStatisticsError] = []
    with RunSamples(results_file) as samples:
        model = helm_name(samples.document.model_name or "model")
        for task in samples.tasks:
            collected = _collect(samples, task, model)
            if collected is not None:
                try:
                    written.append(_write(samples.document, collected, folder, allow_fewer))
                except FewerStatisticsError as error:
                    refused.append(error)
    if not written and not refused:
        raise NothingMeasuredError(f"{results_file} has no sample with a score, so nothing can be written for HELM")
    if written:
        write_schema(folder, output_path / SCHEMA)
    if refused:
        others = f" ({len(refused) - 1} more likewise)" if len(refused) > 1 else ""
        raise FewerStatisticsError(f"{refused[0]}{others}; {len(written)} of {len(written) + len(refused)} are written")
    return tuple(written)


def _collect(samples: RunSamples, task: str, model: str) -> _Task | None:
    collected = None
    for doc_id in samples.doc_ids(task):
        sample = samples.sample(task, doc_id)
        if sample.failure is not None or not sample.prompts:
            continue
        with reading(samples_file_of(samples.file, task), f"document {doc_id}"):
            collected = collected or _begin(samples.document, sample, model)
            collected.add(sample)
    return collected if collected and collected.names else None


def _begin(document: ResultsDocument, sample: RunSample, model: str) -> _Task:
    task, method = sample.task, method_of(sample)
    is_test = bool(document.configs.get(task, {}).get("test_split"))
    num_fewshot = document.n_shot.get(task)
    return _Task(
        name=task,
        names=_stat_names(document.results[task]),
        split="test" if is_test else "valid",
        spec=adapter_spec(sample, method, model, num_fewshot if isinstance(num_fewshot, int) else 0),
        method=method,
    )


def _stat_names(values: Mapping[str, Any]) -> dict[MetricKey, str]:
    """The statistic's name for each metric and filter; the filter is part of it only if there are several.

    Values that are not finite are left out: HELM cannot store them.
    """
    numbers = [key for key, value in values.items() if isinstance(value, int | float) and isfinite(value)]
    keys = [MetricKey.read(key) for key in score_keys(numbers)]
    filters = {key.filter for key in keys}
    return {key: key.metric if len(filters) == 1 else str(key) for key in keys}


def _bookkeeping(sample: RunSample, method: str) -> Iterator[tuple[str, Number]]:
    """The counts and times that HELM has for every instance, as far as they are known."""
    answers = sample.answers
    yield "num_references", len(sample.prompts) if method == CHOICES else 1
    yield "num_train_trials", 1
    if all(answer.prompt_tokens is not None for answer in answers):
        yield "num_prompt_tokens", sum(answer.prompt_tokens or 0 for answer in answers)
    if all(answer.completion_tokens is not None for answer in answers):
        yield "num_output_tokens", sum(answer.completion_tokens or 0 for answer in answers)
    if any(answer.latency for answer in answers):
        yield "inference_runtime", sum(answer.latency for answer in answers)
    if method == CHOICES:
        logprobs = [answer.logprob or 0 for answer in answers]
        yield "predicted_index", logprobs.index(max(logprobs))


def _write(document: ResultsDocument, task: _Task, folder: Path, allow_fewer: bool) -> Path:
    config = document.configs.get(task.name, {})
    name = f"{safe_name(task.name)}:model={safe_name(task.spec.model)}"
    version = document.versions.get(task.name)
    run_spec = RunSpec(
        name=name,
        scenario_spec=ScenarioSpec(f"lm_eval.tasks.{task.name}", {} if version is None else {"version": version}),
        adapter_spec=task.spec,
        metric_specs=[MetricSpec(LM_EVAL_SCORES, {"names": list(task.names.values()), "split": task.split})],
        groups=[task.name],
    )
    data_set = config.get("dataset_path")
    scenario = Scenario(
        task.name,
        f"The task {task.name} of lm-evaluation-harness{f', with the data set {data_set}' if data_set else ''}",
        [tag for tag in _tags(config.get("tag")) if tag],
    )
    files = RunFiles(run_spec, scenario, ScenarioState(task.spec, task.states))
    stats = task.aggregated(document.results[task.name])
    write_scored_run(files, stats, task.records, folder / name, allow_fewer=allow_fewer)
    return folder / name


def _tags(tag: Any) -> Sequence[str]:
    return [tag] if isinstance(tag, str) else [str(one) for one in tag or ()]
