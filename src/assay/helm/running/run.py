"""Answers a HELM run's requests, computes its metrics and writes its files."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assay._util.event_loops import refuse_inside_event_loop
from assay._util.interruption import interruptible
from assay.errors import NothingMeasuredError, SamplesFailedError, SpecificationError
from assay.helm.evaluation import plan_metrics
from assay.helm.options import EntryOptions, FlexLLMGenModel, LocalModel, MetricOptions, suite_folder
from assay.helm.run_directory import RunFiles, available_metrics, write_run
from assay.helm.running.answering import answer_requests
from assay.helm.running.entry import Entry, build_run
from assay.helm.running.preflight import check_results_can_be_written
from assay.helm.running.runs import helm_name as name_in_helm
from assay.helm.running.runs import read_run
from assay.helm.saved_run import ScoredRun
from assay.helm.selection import import_plugins, load_tokenizer
from assay.progress import Progress
from assay.results.failures import what_to_do
from assay.specification import validate_model
from assay.types import LOCAL_PREFIX, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.helm.engines.protocol import Engine
    from assay.helm.installed_helm import InstalledHelmMetric
    from assay.helm.metrics.base import Metric
    from assay.helm.running.answering import Answered, Source
    from assay.helm.running.runs import RunToAnswer
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.tokenization import TokenizerService
    from assay.types import Failure

_DEFAULT_OPTIONS = MetricOptions()
_DEFAULT_ENTRY = EntryOptions()


@dataclass(frozen=True, kw_only=True)
class AnsweredRun(ScoredRun):
    """A run whose requests were sent to a model, and whose metrics have been computed and written."""

    num_requests: int
    failures: Mapping[int, Failure]
    """Why requests have no answer, by their index in the run; they are not scored."""
    num_truncated: int
    """Number of prompts that were cut at their end to the model's context length, as HELM cuts them."""
    num_empty: int
    """Number of answers without text; they are scored as empty."""

    @property
    def causes(self) -> str:
        """The causes of failures with their counts, most frequent first."""
        counts = Counter(failure.cause for failure in self.failures.values())
        return ", ".join(f"{count} {cause}" for cause, count in counts.most_common())

    def raise_if_incomplete(self) -> None:
        """Raise if answers or statistics are missing that the run could have.

        Raises:
            SamplesFailedError: requests have no answer; the same call sends only these again.
            MetricFailedError: a metric failed on the run.
            NothingMeasuredError: no answer was scored.
            MissingDependencyError: a metric needs a package or data that are not installed.
        """
        if self.failures:
            raise SamplesFailedError(
                f"{len(self.failures)} of {self.num_requests} requests have no answer ({self.causes}) and "
                f"are not scored; {what_to_do([failure.cause for failure in self.failures.values()])}"
            )
        super().raise_if_incomplete()


def run(
    what: str | Path,
    model: ModelSpec | LocalModel | FlexLLMGenModel | Engine,
    options: MetricOptions = _DEFAULT_OPTIONS,
    *,
    entry: EntryOptions = _DEFAULT_ENTRY,
    helm_name: str | None = None,
    output_dir: str | Path = "benchmark_output",
    suite: str = "assay",
    fresh: bool = False,
    progress: Progress | None = None,
    on_result: Callable[[AnsweredRun], None] = lambda _: None,
) -> AnsweredRun:
    """Answer a HELM run's requests with a model, compute its metrics and write its five files.

    If the run is interrupted or requests fail, the same call resumes it.

    Args:
        what: an earlier run's directory, whose requests are sent unchanged; or a description as for helm-run, from
            which the installed crfm-helm builds the requests.
        model: a served model, a model to load in this process, or an engine of your own.
        options: how the metrics are computed and written.
        entry: how HELM builds a run from a description.
        helm_name: the model's name in HELM's files, ``CREATOR/NAME``.
        output_dir: HELM's output path; the run is written to ``runs/<suite>/<run>/`` in it.
        suite: HELM's suite of runs.
        fresh: start from the beginning instead of resuming an interrupted run.
        progress: is notified of what happens; :func:`assay.show_progress` shows it.
        on_result: called with the run before it is marked as finished. If the process is interrupted until then, the
            same call sends nothing again.

    Raises:
        UsageError: the arguments are wrong, or the run cannot be answered.
        OutputError: the files cannot be written.
        FewerStatisticsError: the new statistics are fewer than the old, and ``options.allow_fewer`` is not set.
        UnjudgeableError: the server cannot be reached, or refuses everything; or no metric can be computed.
        RunInterrupted: stopped by Ctrl-C or SIGTERM; the same call resumes the run.
    """
    refuse_inside_event_loop("assay.helm.run", "await asyncio.to_thread(assay.helm.run, …)")
    output = Path(output_dir)
    journals = output / "journal"
    with interruptible(journals):
        answerer = _answering_model(model, options.tokenizer)
        asked = _run_to_answer(what, answerer, entry, helm_name, output)
        job = _prepare(asked, answerer, options, entry, suite_folder(output, suite))
        with progress or Progress() as watching:
            job.check_before_asking(watching)
            with answer_requests(asked.run_spec, asked.state, answerer.source, journals, watching, fresh=fresh) as done:
                outcome = job.outcome(done)
        on_result(outcome)
    done.finish()
    return outcome


@dataclass(frozen=True)
class _AnsweringModel:
    """The model that answers a run's requests."""

    source: Source
    model: str
    """Its name, from which the name in HELM's files is derived."""
    tokenizer: str | None
    max_length: int | None


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A run with everything that is known before its requests are sent."""

    run: RunToAnswer
    source: Source
    folder: Path
    options: MetricOptions
    metrics: Sequence[Metric | InstalledHelmMetric]
    service: TokenizerService | None
    unsafe_code: UnsafeCode | None
    left_out: tuple[str, ...]
    missing: tuple[str, ...]

    def check_before_asking(self, progress: Progress) -> None:
        """Report metrics that are left out, and refuse a run whose files could not be written."""
        for line in self.left_out:
            progress.noted(line)
        if self.run.run_spec.annotators:
            progress.noted("only HELM can run the run's annotators; metrics that depend on them are left out")
        if not self.metrics:
            raise NothingMeasuredError("no metric can be computed")
        if self.run.is_stored_in(self.folder):
            raise SpecificationError(
                f"{self.folder} is the run whose requests are sent, and would be replaced; name another --suite"
            )
        check_results_can_be_written(
            self.run,
            self.metrics,
            self.folder,
            self.service,
            returns_tokens=self.source.returns_tokens,
            allow_fewer=self.options.allow_fewer,
        )

    def outcome(self, done: Answered) -> AnsweredRun:
        """Compute the metrics over the answers and write the files."""
        evaluated = write_run(
            RunFiles(self.run.run_spec, self.run.scenario, done.state),
            self.metrics,
            self.folder,
            self.service,
            self.options.parallelism,
            unsafe_code=self.unsafe_code,
            allow_fewer=self.options.allow_fewer,
        )
        return AnsweredRun(
            folder=self.folder,
            evaluated=evaluated,
            left_out=self.left_out,
            missing=self.missing,
            num_requests=len(done.state.request_states),
            failures=done.failures,
            num_truncated=done.num_truncated,
            num_empty=done.num_empty,
        )


def _prepare(
    run: RunToAnswer, answerer: _AnsweringModel, options: MetricOptions, entry: EntryOptions, suite: Path
) -> _Job:
    service = None if answerer.tokenizer is None else load_tokenizer(answerer.tokenizer)
    folder = run.folder_in(suite)
    unsafe_code = options.unsafe_code(folder, run.read_from)
    if importlib.util.find_spec("helm") is not None:  # otherwise their metrics, which are HELM's, cannot be computed
        import_plugins(entry.plugins)
    possible = available_metrics(run.run_spec, options.first_metric_only)
    planned = plan_metrics(possible.metrics, run.state, service is not None, unsafe_code)
    return _Job(
        run=run,
        source=answerer.source,
        folder=folder,
        options=options,
        metrics=planned.metrics,
        service=service,
        unsafe_code=unsafe_code,
        left_out=(*possible.only_in_helm, *possible.missing, *planned.left_out),
        missing=tuple(possible.missing),
    )


def _answering_model(
    model: ModelSpec | LocalModel | FlexLLMGenModel | Engine, tokenizer: str | None
) -> _AnsweringModel:
    if isinstance(model, ModelSpec):
        from assay.helm.running.server import ServerSource

        validate_model(model)
        if model.stream:
            raise SpecificationError(
                "HELM's runs need whole replies with all completions and tokens: leave out --stream"
            )
        return _AnsweringModel(ServerSource(model), model.model, tokenizer, model.max_length)
    from assay.helm.engines.local import LocalSource

    if isinstance(model, FlexLLMGenModel):
        from assay.helm.engines.flexllmgen import FlexLLMGenEngine

        flexllmgen = FlexLLMGenEngine(model.path, model.options, seed=model.seed)
        return _AnsweringModel(
            LocalSource(flexllmgen), model.path, tokenizer or f"{LOCAL_PREFIX}{model.path}", flexllmgen.max_length
        )
    if not isinstance(model, LocalModel):
        return _AnsweringModel(LocalSource(model), "model", tokenizer, model.max_length)
    from assay.helm.engines.huggingface import HuggingFaceEngine

    engine = HuggingFaceEngine(
        model.path,
        batch_size=model.batch_size,
        dtype=model.dtype,
        device=model.device,
        max_length=model.max_length,
        add_bos=model.bos,
        seed=model.seed,
    )
    return _AnsweringModel(
        LocalSource(engine), model.path, tokenizer or f"{LOCAL_PREFIX}{model.path}", engine.max_length
    )


def _run_to_answer(
    what: str | Path, answerer: _AnsweringModel, entry: EntryOptions, helm_name: str | None, output: Path
) -> RunToAnswer:
    name = name_in_helm(answerer.model, helm_name)
    if os.path.exists(what):  # Path.exists raises for a description that is too long for a file name
        if entry.changes_the_run:
            raise SpecificationError(
                f"{what} is a run directory, whose requests are sent unchanged: leave out the options that change them"
            )
        return read_run(Path(what), name)
    tokenizer = answerer.tokenizer or ""
    order = Entry(
        description=str(what),
        model=name,
        is_named=helm_name is not None,
        tokenizer=tokenizer.removeprefix(LOCAL_PREFIX) if tokenizer.startswith(LOCAL_PREFIX) else None,
        max_length=answerer.max_length,
        max_eval_instances=entry.max_eval_instances,
        num_train_trials=entry.num_train_trials,
        plugins=entry.plugins,
    )
    return build_run(order, output, entry.helm_python)
