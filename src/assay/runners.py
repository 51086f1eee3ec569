"""One function per benchmark, for tests of inference projects that run lm-eval as a subprocess.

Each evaluates a served model on one of lm-eval's tasks and returns its metrics and the results file::

    metrics, results_file = run_accuracy_gsm8k_cot("http://localhost:8000", "my-model", "results", limit=200)
    assert metrics["exact_match,flexible-extract"] >= 0.435
"""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TextIO, TypedDict

from assay._util.address_list import read_addresses
from assay._util.event_loops import refuse_inside_event_loop
from assay.client.api_key import NO_KEY
from assay.errors import SamplesFailedError, SpecificationError
from assay.lm_eval_process.log import make_log
from assay.progress import Progress
from assay.tasks.seeds import parse_seeds
from assay.tasks.selection import parse_samples
from assay.types import MetricKey, ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import NoReturn, Unpack

    from assay.evaluation import Evaluation

    _Results = Mapping[str, Mapping[str, Any]]

_logger = logging.getLogger(__name__)

_MISSING = -1.0
"""What :func:`resolve_metric` gives for a key that the results lack: below every threshold."""


class RunnerOptions(TypedDict, total=False):
    """What every runner takes beyond its named arguments."""

    use_chat: bool
    """Ask /v1/chat/completions (default), or /v1/completions."""
    fewshot_as_multiturn: bool
    num_fewshot: int | None
    max_concurrent: int | None
    """Requests outstanding at once; by default the engine's own choice."""
    timeout: float | None
    """Seconds for one attempt at a request."""
    data_dir: str | None
    """Data sets on disk: ``DIR/<owner>/<name>``, or a Hugging Face datasets cache."""
    api_key: str | None
    """Sent to the server; ``EMPTY`` unless given. The caller's own ``OPENAI_API_KEY`` is never sent unasked."""
    extra_args: Sequence[str] | None
    """More arguments for lm-eval's command line. Assay's own engine refuses those that it does not support."""
    engine: Literal["assay", "lm_eval"]
    """What runs the task: Assay (default), or lm-eval itself as a child process."""


class Runner(Protocol):
    """A function that evaluates a served model on one task, as all runners below are."""

    __name__: str

    def __call__(
        self,
        base_url: str | Sequence[str],
        model: str,
        results_dir: str,
        limit: float | None = None,
        max_length: int = 16384,
        gen_kwargs: str | Mapping[str, Any] | None = "",
        **options: Unpack[RunnerOptions],
    ) -> tuple[dict[str, Any], str]:
        """Run the task, and log it in ``<results_dir>/<task>_lm_eval.log``.

        Args:
            base_url: the server's root, without ``/v1``; several are replicas of it, which share the requests.
            model: the name under which the server serves the model.
            results_dir: where lm-eval's result files go.
            limit: documents to ask; all if None.
            max_length: the model's context length in tokens.
            gen_kwargs: generation settings, ``key=value,key=value`` or by name.
            options: see :class:`RunnerOptions`.

        Returns:
            Metric key -> value, each with its standard error where lm-eval knows one for it (``"N/A"`` if there are too
            few documents); and the results file.

        Raises:
            AssayError: see :func:`assay.evaluate`; with ``engine="lm_eval"``, :func:`assay.run_lm_eval`.
        """


def resolve_metric(results: Mapping[str, Mapping[str, Any]], task: str, metric_keys: Sequence[str]) -> dict[str, Any]:
    """Pick metrics of one task out of lm-eval's ``results`` section.

    Args:
        results: task -> metric key -> value.
        task: task or group.
        metric_keys: keys to pick, ``"<metric>,<filter>"``.

    Returns:
        Key -> value, ``"N/A"`` where lm-eval has no number. A key that the results lack is logged as an error and gives
        -1, which is below every threshold.
    """
    entry = results.get(task, {})
    for key in metric_keys:
        if key not in entry:
            _logger.error("the results of '%s' have no metric '%s'; they have %s", task, key, ", ".join(entry))
    return {key: entry.get(key, _MISSING) for key in metric_keys}


# -- engines ----------------------------------------------------------------------------------------------------------


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None; an unknown name is refused."""
    known = RunnerOptions.__annotations__
    if unknown := [name for name in options if name not in known]:
        raise SpecificationError(f"a runner has no option '{unknown[0]}'; it has {', '.join(known)}")
    given = {name: value for name, value in options.items() if value is not None}
    if (engine := given.get("engine", "assay")) not in _ENGINES:
        raise SpecificationError(f"there is no engine '{engine}'; there are {', '.join(_ENGINES)}")
    if isinstance(extra := given.get("extra_args"), str):
        raise SpecificationError(f"extra_args is the text {extra!r}; it must be a list, such as {extra.split()}")
    return given


def _ask_with_lm_eval(base_url: str | Sequence[str], *arguments: Any, **options: Any) -> tuple[_Results, str]:
    from assay.lm_eval_process.process import run_lm_eval

    address, *others = read_addresses([base_url] if isinstance(base_url, str) else base_url)
    if others:
        raise SpecificationError(
            f"lm-eval asks one server, and {1 + len(others)} are named; leave engine='lm_eval' out"
        )
    return run_lm_eval(address, *arguments, **options)


def _ask_with_assay(
    base_url: str | Sequence[str],
    model: str,
    results_dir: str,
    task: str,
    gen_kwargs: str | Mapping[str, Any] | None,
    max_length: int,
    api_key: str = NO_KEY,
    **options: Any,
) -> tuple[_Results, str]:
    from assay.client.api_key import api_key_given
    from assay.evaluation import evaluate

    model_options = {
        "concurrency": options.pop("max_concurrent", None),
        "request_timeout": options.pop("timeout", None),
        "endpoint": "chat" if options.pop("use_chat", True) else "completions",
    }
    extra = _read_extra_args(options.pop("extra_args", ()))
    settings = _settings(gen_kwargs, *extra.pop("gen_kwargs", ()))
    address, *replicas = read_addresses([base_url] if isinstance(base_url, str) else base_url)
    specification = Specification(
        tasks=(task,),
        model=ModelSpec(
            base_url=address,
            replicas=tuple(replicas),
            model=model,
            max_length=max_length,
            **{name: value for name, value in model_options.items() if value is not None},
        ),
        options=TaskOptions(**{**options, "gen_kwargs": settings, **extra}),
        output_dir=results_dir,
    )
    with _run_log(Path(results_dir), task) as log, api_key_given(api_key):
        evaluation = evaluate(specification, log)
        log.conclude(evaluation)
    if evaluation.failures:
        causes = Counter(failed.cause.value for failed in evaluation.failures)
        raise SamplesFailedError(
            f"{len(evaluation.failures)} samples of {task} have no score ({', '.join(sorted(causes))}), so that its "
            f"metrics would leave questions out; they are listed in {evaluation.results_file}, and the same call asks "
            "only these again"
        )
    return evaluation.document.results, str(evaluation.results_file)


def _settings(*given: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """Generation settings, as text or by name; the last one of a name counts."""
    from assay.tasks.gen_kwargs import settings_of

    settings: dict[str, Any] = {}
    for each in given:
        settings |= settings_of(each)
    return settings


@contextlib.contextmanager
def _run_log(results_dir: Path, task: str) -> Iterator[_RunLog]:
    """Log a run, and the error that ends it, in the file in which :func:`assay.run_lm_eval` keeps lm-eval's output."""
    with make_log(results_dir, task).open("w", encoding="utf-8", errors="backslashreplace") as file:
        log = _RunLog(file)
        try:
            yield log
        except BaseException as error:
            log.noted(str(error) or type(error).__name__)
            raise


class _RunLog(Progress):
    """Writes a run's remarks to a file, one a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def loaded(self, expected: dict[str, int], kept: int, journal: Path) -> None:
        """Write how much there is to ask."""
        self.noted(f"{sum(expected.values())} samples, {kept} answers kept in {journal}")

    def noted(self, remark: str) -> None:
        """Write a line; a log that cannot be written does not end the run."""
        with contextlib.suppress(OSError):
            self._file.write(f"{remark}\n")
            self._file.flush()

    def conclude(self, evaluation: Evaluation) -> None:
        """Write the tables that lm-eval prints, and where the results are."""
        from lm_eval.utils import make_table

        for section in ("results", "groups"):
            if section in evaluation.results:
                self.noted(make_table(evaluation.results, section))
        self.noted(f"{len(evaluation.failures)} samples failed" if evaluation.failures else "no sample failed")
        self.noted(f"results {evaluation.results_file}")


_ENGINES = {"assay": _ask_with_assay, "lm_eval": _ask_with_lm_eval}


class _ExtraArgs(argparse.ArgumentParser):
    """Reads the options of lm-eval's command line that Assay supports."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        self.add_argument("--limit", "-L", type=float)
        self.add_argument("--num_fewshot", "-f", type=int)
        self.add_argument("--system_instruction")
        self.add_argument("--include_path")
        self.add_argument("--seed")
        self.add_argument("--gen_kwargs", nargs="+", action="extend")
        self.add_argument("--samples", "-E")
        self.add_argument("--confirm_run_unsafe_code", action="store_true")
        # How much lm-eval says and keeps; Assay keeps everything.
        for silent in (("--log_samples", "-s"), ("--write_out", "-w"), ("--show_config",)):
            self.add_argument(*silent, action="store_true", dest="ignored")
        self.add_argument("--verbosity", "-v", dest="ignored")

    def error(self, message: str) -> NoReturn:
        raise SpecificationError(f"extra_args cannot be read: {message}")


def _read_extra_args(extra_args: Sequence[str]) -> dict[str, Any]:
    """The task options that arguments for lm-eval's command line stand for."""
    read, unknown = _ExtraArgs().parse_known_args(extra_args)
    if unknown:
        raise SpecificationError(
            f'extra_args has {unknown[0]!r}, for which Assay\'s own engine has no meaning; engine="lm_eval" takes it'
        )
    options = vars(read)
    options.pop("ignored", None)
    if "seed" in options:
        options |= parse_seeds(options.pop("seed"))
    if "samples" in options:
        options["samples"] = parse_samples(options["samples"])
    return options


# -- the runners ------------------------------------------------------------------------------------------------------


def _runner(name: str, task: str, *metrics: str, without_stderr: Sequence[str] = ()) -> Runner:
    """Make the function that evaluates a model on `task`.

    Args:
        name: the function's name.
        task: lm-eval's name of the task or group.
        metrics: the metrics to give back, as lm-eval's results name them, each with its standard error.
        without_stderr: those for which lm-eval never knows one.
    """
    keys = [key for metric in metrics for key in (metric, str(MetricKey.read(metric).stderr))]

    def run(
        base_url: str | Sequence[str],
        model: str,
        results_dir: str,
        limit: float | None = None,
        max_length: int = 16384,
        gen_kwargs: str | Mapping[str, Any] | None = "",
        **options: Unpack[RunnerOptions],
    ) -> tuple[dict[str, Any], str]:
        given = _given(options)
        engine = _ENGINES[given.pop("engine", "assay")]
        if engine is _ask_with_assay:
            refuse_inside_event_loop(name, f"await asyncio.to_thread({name}, …)")
        results, results_file = engine(
            base_url,
            model,
            results_dir,
            task,
            limit=limit,
            gen_kwargs=gen_kwargs,
            max_length=max_length,
            **given,
        )
        return resolve_metric(results, task, [*keys, *without_stderr]), results_file

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"Evaluate a served model on {task}: {', '.join(metrics)}.\n\n{Runner.__call__.__doc__}"
    return run


_GSM8K = ("exact_match,flexible-extract", "exact_match,strict-match")

run_accuracy_gsm8k = _runner("run_accuracy_gsm8k", "gsm8k", *_GSM8K)
run_accuracy_gsm8k_cot = _runner("run_accuracy_gsm8k_cot", "gsm8k_cot", *_GSM8K)
run_accuracy_gsm8k_cot_llama = _runner("run_accuracy_gsm8k_cot_llama", "gsm8k_cot_llama", *_GSM8K)
run_accuracy_bbh = _runner("run_accuracy_bbh", "bbh_cot_fewshot", "exact_match,get-answer")
run_accuracy_ifeval = _runner(
    "run_accuracy_ifeval",
    "leaderboard_ifeval",
    "prompt_level_strict_acc,none",
    "prompt_level_loose_acc,none",
    without_stderr=("inst_level_strict_acc,none", "inst_level_loose_acc,none"),
)
run_accuracy_mmlu_pro = _runner("run_accuracy_mmlu_pro", "mmlu_pro", "exact_match,custom-extract")
