"""A HELM run from its description or directory to its files: requests answered, metrics computed."""

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
from assay.helm.evaluation import plan
from assay.helm.options import EntryOptions, LocalModel, MetricOptions, suite_folder
from assay.helm.run_directory import RunFiles, possible_metrics, write_run
from assay.helm.running.answering import answered
from assay.helm.running.entry import Entry, build_run
from assay.helm.running.preflight import check_outcome
from assay.helm.running.runs import helm_name as name_in_helm
from assay.helm.running.runs import read_run
from assay.helm.saved_run import ScoredRun
from assay.helm.selection import import_plugins, load_tokenizer
from assay.progress import Progress
from assay.results.failures import what_to_do
from assay.specification import validate_model
from assay.types import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.helm.engines.protocol import Engine
    from assay.helm.foreign import ForeignMetric
    from assay.helm.metrics.base import Metric
    from assay.helm.running.answering import Answered, Source
    from assay.helm.running.runs import RunToAnswer
    from assay.helm.scoring.code import UnsafeCode
    from assay.helm.tokenization import TokenizerService
    from assay.types import Failure

_LOCAL = "hf:"
_AS_USUAL = MetricOptions()
_AS_DESCRIBED = EntryOptions()


@dataclass(frozen=True, kw_only=True)
class AnsweredRun(ScoredRun):
    """A run whose requests were put to a model, and whose metrics are computed and written."""

    num_requests: int
    failures: Mapping[int, Failure]
    """Why requests have no answer, by their place in the run; they are not scored."""
    num_cut: int
    """Prompts that were longer than the model's window and were cut at their end, as HELM cuts them."""
    num_empty: int
    """Answers without a text; they are scored as such."""

    @property
    def causes(self) -> str:
        """How often what kept a request from being answered."""
        counts = Counter(failure.cause for failure in self.failures.values())
        return ", ".join(f"{count} {cause}" for cause, count in counts.most_common())

    def raise_if_incomplete(self) -> None:
        """Raise where the run's files lack something that could be there.

        Raises:
            SamplesFailedError: requests have no answer; the same call asks only these again.
            MetricFailedError: a metric failed on the run.
            NothingMeasuredError: the statistics say nothing of any answer.
            MissingDependencyError: a metric needs what is not installed.
        """
        if self.failures:
            raise SamplesFailedError(
                f"{len(self.failures)} of {self.num_requests} requests have no answer ({self.causes}) and "
                f"are not scored; {what_to_do([failure.cause for failure in self.failures.values()])}"
            )
        super().raise_if_incomplete()


def run(
    what: str | Path,
    model: ModelSpec | LocalModel | Engine,
    options: MetricOptions = _AS_USUAL,
    *,
    entry: EntryOptions = _AS_DESCRIBED,
    helm_name: str | None = None,
    output_dir: str | Path = "benchmark_output",
    suite: str = "assay",
    fresh: bool = False,
    progress: Progress | None = None,
    tell: Callable[[AnsweredRun], None] = lambda _: None,
) -> AnsweredRun:
    """Answer a HELM run's requests with a model, compute its metrics and write its five files.

    If the run is interrupted or requests fail, the same call goes on where it stopped.

    Args:
        what: an earlier run's directory, whose requests are asked again as they are; or a description as helm-run takes
            it, whose requests the installed crfm-helm makes.
        model: the server's; or one to be loaded in this process; or an engine of your own, which has one.
        options: how the metrics are computed.
        entry: how HELM builds a run that is described.
        helm_name: what the model is called in HELM's files, ``CREATOR/NAME``.
        output_dir: HELM's output path; the run goes to ``runs/<suite>/<run>/`` in it.
        suite: HELM's suite of runs.
        fresh: start anew instead of going on with an interrupted run.
        progress: is told what happens; :func:`assay.show_progress` shows it.
        tell: is given the run. Only then does it count as finished: whatever interrupts it before, the same call asks
            nothing again.

    Raises:
        UsageError: it cannot be done as asked.
        OutputError: the files cannot be written.
        FewerStatisticsError: they would replace statistics by fewer, which ``options`` does not allow.
        UnjudgeableError: the server cannot be reached, or refuses everything; or no metric can be computed.
        RunInterrupted: stopped by Ctrl-C or SIGTERM; the same call goes on where it stopped.
    """
    refuse_inside_event_loop("assay.helm.run", "await asyncio.to_thread(assay.helm.run, …)")
    output = Path(output_dir)
    journals = output / "journal"
    with interruptible(journals):
        answering = _answering(model, options.tokenizer)
        asked = _run_to_answer(what, answering, entry, helm_name, output)
        job = _prepare(asked, answering, options, entry, suite_folder(output, suite))
        with progress or Progress() as watching:
            job.refuse_hopeless(watching)
            with answered(asked.run_spec, asked.state, answering.source, journals, watching, fresh=fresh) as done:
                outcome = job.outcome(done)
        tell(outcome)
    done.finish()
    return outcome


@dataclass(frozen=True)
class _Answering:
    """Who answers a run's requests."""

    source: Source
    model: str
    """Its name, of which HELM's is made."""
    tokenizer: str | None
    max_length: int | None


@dataclass(frozen=True, kw_only=True)
class _Job:
    """All that is known before a run's requests are asked."""

    run: RunToAnswer
    source: Source
    folder: Path
    options: MetricOptions
    metrics: Sequence[Metric | ForeignMetric]
    service: TokenizerService | None
    unsafe_code: UnsafeCode | None
    left_out: tuple[str, ...]
    missing: tuple[str, ...]

    def refuse_hopeless(self, progress: Progress) -> None:
        """Say what will not be computed, and refuse a run whose files could not be written."""
        for line in self.left_out:
            progress.noted(line)
        if self.run.run_spec.annotators:
            progress.noted("the run's annotators are HELM's own and do not run here; what rests on them is left out")
        if not self.metrics:
            raise NothingMeasuredError("no metric can be computed")
        if self.run.is_in(self.folder):
            raise SpecificationError(
                f"{self.folder} would be replaced, which is the run to be asked; name another --suite"
            )
        check_outcome(
            self.run,
            self.metrics,
            self.folder,
            self.service,
            gives_tokens=self.source.gives_tokens,
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
            num_cut=done.num_cut,
            num_empty=done.num_empty,
        )


def _prepare(run: RunToAnswer, answering: _Answering, options: MetricOptions, entry: EntryOptions, suite: Path) -> _Job:
    service = None if answering.tokenizer is None else load_tokenizer(answering.tokenizer)
    folder = run.folder_in(suite)
    unsafe_code = options.unsafe_code(folder, run.read_from)
    if importlib.util.find_spec("helm") is not None:  # else their metrics cannot be computed here anyway
        import_plugins(entry.plugins)
    possible = possible_metrics(run.run_spec, options.first_metric_only)
    plans = plan(possible.metrics, run.state, service is not None, unsafe_code)
    return _Job(
        run=run,
        source=answering.source,
        folder=folder,
        options=options,
        metrics=plans.metrics,
        service=service,
        unsafe_code=unsafe_code,
        left_out=(*possible.only_helms, *possible.missing, *plans.left_out),
        missing=tuple(possible.missing),
    )


def _answering(model: ModelSpec | LocalModel | Engine, tokenizer: str | None) -> _Answering:
    if isinstance(model, ModelSpec):
        from assay.helm.running.server import ServerSource

        validate_model(model)
        if model.stream:
            raise SpecificationError(
                "HELM's runs need whole replies, with all completions and tokens: leave out --stream"
            )
        return _Answering(ServerSource(model), model.model, tokenizer, model.max_length)
    from assay.helm.engines.local import LocalSource

    if not isinstance(model, LocalModel):
        return _Answering(LocalSource(model), "model", tokenizer, model.window)
    from assay.helm.engines.huggingface import HuggingFaceEngine

    engine = HuggingFaceEngine(
        model.path,
        batch_size=model.batch_size,
        dtype=model.dtype,
        device=model.device,
        window=model.max_length,
        begins=model.bos,
        seed=model.seed,
    )
    return _Answering(LocalSource(engine), model.path, tokenizer or f"{_LOCAL}{model.path}", engine.window)


def _run_to_answer(
    what: str | Path, answering: _Answering, entry: EntryOptions, helm_name: str | None, output: Path
) -> RunToAnswer:
    name = name_in_helm(answering.model, helm_name)
    if os.path.exists(what):  # Path.exists fails where the description is too long to be a file's name
        if entry.shapes_the_run:
            raise SpecificationError(f"{what} is a run directory: its requests are taken as they are")
        return read_run(Path(what), name)
    tokenizer = answering.tokenizer or ""
    order = Entry(
        description=str(what),
        model=name,
        is_named=helm_name is not None,
        tokenizer=tokenizer.removeprefix(_LOCAL) if tokenizer.startswith(_LOCAL) else None,
        window=answering.max_length,
        max_eval_instances=entry.max_eval_instances,
        num_train_trials=entry.num_train_trials,
        plugins=entry.plugins,
    )
    return build_run(order, output, entry.helm_python)
