"""One call a benchmark: the accuracy runners that inference projects' own tests call.

Each asks a served model one of lm-eval's tasks and gives back its metrics and the results file::

    metrics, results_file = run_accuracy_gsm8k_cot("http://localhost:8000", "my-model", "results", limit=200)
    assert metrics["exact_match,flexible-extract"] >= 0.435
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from assay.errors import SpecificationError
from assay.types import ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

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
    """Requests outstanding at once; by default Assay's own choice."""
    timeout: float
    """Seconds for one attempt at a request."""
    data_dir: str | None
    """Data sets on disk: ``DIR/<owner>/<name>``, or a Hugging Face datasets cache."""
    extra_args: Sequence[str] | None
    """Arguments for lm-eval's command line; only with ``engine="lm_eval"``."""
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
        base_url: str,
        model: str,
        results_dir: str,
        limit: float | None = None,
        max_length: int = 16384,
        gen_kwargs: str = "",
        **options: Unpack[RunnerOptions],
    ) -> tuple[dict[str, float], str]:
        """Run the task.

        Args:
            base_url: the server's root, without ``/v1``.
            model: the name under which the server serves the model.
            results_dir: where lm-eval's result files go.
            limit: documents to ask; all if None.
            max_length: the model's context length in tokens.
            gen_kwargs: generation settings, ``key=value,key=value``.
            options: see :class:`RunnerOptions`.

        Returns:
            Metric key -> value, each with its standard error where lm-eval has one; and the results file.

        Raises:
            AssayError: see :func:`assay.evaluate`.
        """
        if options.get("engine", "assay") == "lm_eval":
            raise SpecificationError('engine="lm_eval" is not available yet; leave it out to use Assay\'s own engine')
        from assay.evaluation import evaluate
        from assay.tasks.gen_kwargs import parse_gen_kwargs

        task_options = TaskOptions(
            limit=limit,
            num_fewshot=options.get("num_fewshot"),
            gen_kwargs=parse_gen_kwargs(gen_kwargs),
            fewshot_as_multiturn=options.get("fewshot_as_multiturn", True),
            data_dir=options.get("data_dir"),
        )
        evaluation = evaluate(
            Specification(
                tasks=(self.task,),
                model=_model_spec(base_url, model, max_length, options),
                options=task_options,
                output_dir=results_dir,
            )
        )
        results = evaluation.results["results"]
        return resolve_metric(results, self.task, self._keys_in(results)), str(evaluation.results_file)

    def _keys_in(self, results: Mapping[str, Mapping[str, Any]]) -> list[str]:
        entry = results.get(self.task, {})
        keys = []
        for key in self.metric_keys:
            metric, filter_name = key.split(",", 1)
            stderr = f"{metric}_stderr,{filter_name}"
            keys += [key, stderr] if isinstance(entry.get(stderr), float) else [key]
        return keys


def _model_spec(base_url: str, model: str, max_length: int, options: RunnerOptions) -> ModelSpec:
    known = RunnerOptions.__annotations__
    if unknown := [name for name in options if name not in known]:
        raise SpecificationError(f"a runner has no option '{unknown[0]}'; it has {', '.join(known)}")
    if options.get("extra_args"):
        raise SpecificationError('extra_args are arguments of lm-eval\'s command line; they need engine="lm_eval"')
    chosen: dict[str, Any] = {
        "concurrency": options.get("max_concurrent"),
        "request_timeout": options.get("timeout"),
        "endpoint": "chat" if options.get("use_chat", True) else "completions",
    }
    return ModelSpec(
        base_url=base_url,
        model=model,
        max_length=max_length,
        **{name: value for name, value in chosen.items() if value is not None},
    )


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
