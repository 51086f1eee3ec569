"""Options for computing metrics, building runs and loading models."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.helm.scoring.code import UnsafeCode
    from assay.types import Precision


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """How a run's metrics are computed and written."""

    tokenizer: str | None = None
    """The model's tokenizer, which counts tokens and cuts prompts to the context length: ``hf:PATH``, or
    ``MODULE:OBJECT`` with ``encode`` and ``decode``."""
    first_metric_only: bool = False
    """Compute only the run's first metric, as FlexLLMGen does."""
    confirm_run_unsafe_code: bool = False
    """Allow scores that run code written by the model (pass, code_eval_acc), in a sandbox."""
    code_tests: str | Path | None = None
    """HumanEval.jsonl with the tests; None: the copy in HELM's output path."""
    parallelism: int = 4
    """Maximum number of scoring processes."""
    allow_fewer: bool = False
    """Replace existing statistics even if the new ones are fewer."""

    def __post_init__(self) -> None:
        _require_positive(self, "parallelism")

    def unsafe_code(self, *folders: Path | None) -> UnsafeCode | None:
        """The permission to run code written by the model; None without ``confirm_run_unsafe_code``.

        Args:
            folders: run directories; the tests come from the first whose output path has HumanEval.jsonl.
        """
        from assay.helm.scoring.code import UnsafeCode
        from assay.helm.selection import find_code_tests

        if not self.confirm_run_unsafe_code:
            return None
        kept = [found for folder in folders if folder and (found := find_code_tests(folder))]
        return UnsafeCode(self.code_tests or next(iter(kept), None))


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """How HELM builds a run from a description."""

    max_eval_instances: int | None = None
    """Maximum number of instances."""
    num_train_trials: int | None = None
    """Number of trials, each with different few-shot examples."""
    plugins: tuple[str, ...] = ()
    """Modules that HELM imports."""
    helm_python: str | None = None
    """A Python interpreter that has crfm-helm; None: this one."""

    def __post_init__(self) -> None:
        _require_positive(self, "max_eval_instances", "num_train_trials")

    @property
    def changes_the_run(self) -> bool:
        """Whether any option changes the run's requests."""
        return bool(self.max_eval_instances or self.num_train_trials or self.plugins)


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A Hugging Face model that is loaded in this process."""

    path: str
    """Its folder, or its name on the hub."""
    batch_size: int = 8
    """Prompts in a batch."""
    dtype: Precision = "auto"
    """``auto`` (the precision of the stored weights), ``float32``, ``bfloat16`` or ``float16``."""
    device: str | None = None
    """PyTorch's device; None: a GPU if there is one."""
    max_length: int | None = None
    """Context length in tokens; None: as its files say."""
    bos: bool = True
    """Let the tokenizer add its beginning-of-sequence token to prompts; FlexLLMGen does not."""
    seed: int = 0
    """Seed for sampling."""

    def __post_init__(self) -> None:
        _require_positive(self, "batch_size", "max_length")


FLEXLLMGEN_PREFIX = "flexllmgen:"
"""Begins the name of a model that FlexLLMGen runs in this process."""


@dataclass(frozen=True, kw_only=True)
class FlexLLMGenModel:
    """An OPT model that FlexLLMGen runs in this process."""

    path: str
    """Its folder, or its name on the hub."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """FlexLLMGen's options by its own names, such as ``percent`` and ``gpu_batch_size``."""
    seed: int = 0
    """Seed for sampling."""


def _require_positive(options: MetricOptions | EntryOptions | LocalModel, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise SpecificationError(f"{name} is {value}; it must be at least 1")


def suite_folder(output_dir: Path, suite: str) -> Path:
    """The folder of a suite's runs in HELM's output path.

    Raises:
        SpecificationError: the suite's name cannot be a directory's name.
    """
    if suite in ("", ".", "..") or "/" in suite or "\0" in suite:
        raise SpecificationError(f"the suite {suite!r} cannot be the name of a directory")
    return output_dir / "runs" / suite
