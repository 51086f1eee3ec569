"""One call a benchmark: the accuracy runners that inference projects' own tests call.

Each asks a served model one of lm-eval's tasks and gives back its metrics and the results file::

    metrics, results_file = run_accuracy_gsm8k_cot("http://localhost:8000", "my-model", "results", limit=200)
    assert metrics["exact_match,flexible-extract"] >= 0.435
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from assay._util.address_list import read_addresses
from assay.errors import SamplesFailedError, SpecificationError
from assay.tasks.seeds import parse_seeds
from assay.tasks.selection import parse_samples
from assay.types import ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn, Unpack

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
    extra_args: Sequence[str] | None
    """More arguments as lm-eval's command line has them. Assay's own engine takes those that it has a meaning for."""
    engine: Literal["assay", "lm_eval"]
    """Who asks: Assay (default), or lm-eval itself as a child process."""


@dataclass(frozen=True)
class AccuracyRunner:
    """Evaluates a served model on one task."""

    task: str
    """lm-eval's name of the task or group."""
    metric_keys: tuple[str, ...]
    """The metrics to give back, as lm-eval's results name them."""

    def __call__(
        self,
        base_url: str | Sequence[str],
        model: str,
        results_dir: str,
        limit: float | None = None,
        max_length: int = 16384,
        gen_kwargs: str = "",
        **options: Unpack[RunnerOptions],
    ) -> tuple[dict[str, float], str]:
        """Run the task.

        Args:
            base_url: the server's root, without ``/v1``; several are replicas of it, which share the requests.
            model: the name under which the server serves the model.
            results_dir: where lm-eval's result files go.
            limit: documents to ask; all if None.
            max_length: the model's context length in tokens.
            gen_kwargs: generation settings, ``key=value,key=value``.
            options: see :class:`RunnerOptions`.

        Returns:
            Metric key -> value, each with its standard error where lm-eval has one; and the results file.

        Raises:
            AssayError: see :func:`assay.evaluate`; with ``engine="lm_eval"``, :func:`assay.run_lm_eval`.
        """
        given = _given(options)
        engine = _ENGINES[given.pop("engine", "assay")]
        results, results_file = engine(
            base_url,
            model,
            results_dir,
            self.task,
            limit=limit,
            gen_kwargs=gen_kwargs,
            max_length=max_length,
            **given,
        )
        return resolve_metric(results, self.task, self._keys_in(results)), results_file

    def _keys_in(self, results: Mapping[str, Mapping[str, Any]]) -> list[str]:
        entry = results.get(self.task, {})
        keys = []
        for key in self.metric_keys:
            metric, filter_name = key.split(",", 1)
            stderr = f"{metric}_stderr,{filter_name}"
            keys += [key, stderr] if isinstance(entry.get(stderr), float) else [key]
        return keys


def resolve_metric(results: Mapping[str, Mapping[str, Any]], task: str, metric_keys: Sequence[str]) -> dict[str, float]:
    """Pick metrics of one task out of lm-eval's ``results`` section.

    Args:
        results: task -> metric key -> value.
        task: task or group.
        metric_keys: keys to pick, ``"<metric>,<filter>"``.

    Returns:
        Key -> value. A key that the results lack is logged as an error and gives -1, which is below every threshold.
    """
    entry = results.get(task, {})
    for key in metric_keys:
        if key not in entry:
            _logger.error("the results of '%s' have no metric '%s'; they have %s", task, key, ", ".join(entry))
    return {key: entry.get(key, _MISSING) for key in metric_keys}


# -- engines ----------------------------------------------------------------------------------------------------------


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say something, checked by name."""
    known = RunnerOptions.__annotations__
    if unknown := [name for name in options if name not in known]:
        raise SpecificationError(f"a runner has no option '{unknown[0]}'; it has {', '.join(known)}")
    given = {name: value for name, value in options.items() if value is not None}
    if (engine := given.get("engine", "assay")) not in _ENGINES:
        raise SpecificationError(f"there is no engine '{engine}'; there are {', '.join(_ENGINES)}")
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
    gen_kwargs: str,
    max_length: int,
    **options: Any,
) -> tuple[_Results, str]:
    from assay.evaluation import evaluate
    from assay.tasks.gen_kwargs import parse_gen_kwargs

    model_options = {
        "concurrency": options.pop("max_concurrent", None),
        "request_timeout": options.pop("timeout", None),
        "endpoint": "chat" if options.pop("use_chat", True) else "completions",
    }
    extra = _read_extra_args(options.pop("extra_args", ()))
    address, *replicas = read_addresses([base_url] if isinstance(base_url, str) else base_url)
    evaluation = evaluate(
        Specification(
            tasks=(task,),
            model=ModelSpec(
                base_url=address,
                replicas=tuple(replicas),
                model=model,
                max_length=max_length,
                **{name: value for name, value in model_options.items() if value is not None},
            ),
            options=TaskOptions(**{**options, "gen_kwargs": parse_gen_kwargs(gen_kwargs), **extra}),
            output_dir=results_dir,
        )
    )
    if evaluation.failures:
        causes = Counter(failed.cause.value for failed in evaluation.failures)
        raise SamplesFailedError(
            f"{len(evaluation.failures)} samples of {task} have no score ({', '.join(sorted(causes))}), so that its "
            f"metrics would be those of other questions; they are listed in {evaluation.results_file}, and the same "
            "call asks only these again"
        )
    return evaluation.results["results"], str(evaluation.results_file)


_ENGINES = {"assay": _ask_with_assay, "lm_eval": _ask_with_lm_eval}


class _ExtraArgs(argparse.ArgumentParser):
    """Reads what lm-eval's command line and Assay both have a meaning for."""

    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
        self.add_argument("--limit", "-L", type=float)
        self.add_argument("--num_fewshot", "-f", type=int)
        self.add_argument("--system_instruction")
        self.add_argument("--include_path")
        self.add_argument("--seed")
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

_GSM8K_KEYS = ("exact_match,flexible-extract", "exact_match,strict-match")

run_accuracy_gsm8k = AccuracyRunner("gsm8k", _GSM8K_KEYS)
run_accuracy_gsm8k_cot = AccuracyRunner("gsm8k_cot", _GSM8K_KEYS)
run_accuracy_gsm8k_cot_llama = AccuracyRunner("gsm8k_cot_llama", _GSM8K_KEYS)
run_accuracy_bbh = AccuracyRunner("bbh_cot_fewshot", ("exact_match,get-answer",))
run_accuracy_ifeval = AccuracyRunner(
    "leaderboard_ifeval",
    tuple(f"{level}_level_{mode}_acc,none" for level in ("prompt", "inst") for mode in ("strict", "loose")),
)
run_accuracy_mmlu_pro = AccuracyRunner("mmlu_pro", ("exact_match,custom-extract",))
