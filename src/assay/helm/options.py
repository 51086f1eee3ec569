"""What the user of a HELM run chooses besides the run itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from pathlib import Path

    from assay.helm.scoring.code import UnsafeCode


@dataclass(frozen=True, kw_only=True)
class MetricOptions:
    """How a run's metrics are computed, and whether they may replace others."""

    tokenizer: str | None = None
    """The model's tokenizer, for token counts and prompts that fit: ``hf:PATH``, or ``MODULE:OBJECT`` with ``encode``
    and ``decode``."""
    first_metric_only: bool = False
    """Compute only the run's first metric, as FlexLLMGen does."""
    confirm_run_unsafe_code: bool = False
    """Allow the scores that run what the model wrote (pass, code_eval_acc); it is run in a sandbox."""
    code_tests: str | Path | None = None
    """HumanEval.jsonl, which the tests are in; None: where HELM keeps it, seen from the run's directory."""
    parallelism: int = 4
    """Processes that may score at the same time."""
    allow_fewer: bool = False
    """Replace statistics that are there, even by fewer of them."""

    def __post_init__(self) -> None:
        _refuse_below_one(self, "parallelism")

    def unsafe_code(self, *folders: Path | None) -> UnsafeCode | None:
        """What is allowed of running what the model wrote; None where it is not allowed.

        Args:
            folders: run's directories, from the first of which HELM's own tests are seen.
        """
        from assay.helm.scoring.code import UnsafeCode
        from assay.helm.selection import find_code_tests

        if not self.confirm_run_unsafe_code:
            return None
        kept = [found for folder in folders if folder and (found := find_code_tests(folder))]
        return UnsafeCode(self.code_tests or next(iter(kept), None))


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """How HELM builds a run from its description."""

    max_eval_instances: int | None = None
    """How many instances."""
    num_train_trials: int | None = None
    """How many trials, each with other examples in the prompts."""
    plugins: tuple[str, ...] = ()
    """Modules for HELM to load."""
    helm_python: str | None = None
    """An interpreter that has crfm-helm; None: this one."""

    def __post_init__(self) -> None:
        _refuse_below_one(self, "max_eval_instances", "num_train_trials")

    @property
    def shapes_the_run(self) -> bool:
        """Whether any of it says what the run consists of."""
        return bool(self.max_eval_instances or self.num_train_trials or self.plugins)


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """A Hugging Face model to be loaded in this process."""

    path: str
    """Its folder, or its name on the hub."""
    batch_size: int = 8
    """Prompts at once."""
    dtype: str = "auto"
    """Its precision."""
    device: str | None = None
    """Where it runs; None: a GPU if there is one."""
    max_length: int | None = None
    """Its context length in tokens; None: what its files say."""
    bos: bool = True
    """Let the tokenizer put its beginning-of-sequence token before prompts; FlexLLMGen does not."""
    seed: int = 0
    """Of what is sampled."""

    def __post_init__(self) -> None:
        _refuse_below_one(self, "batch_size", "max_length")


def _refuse_below_one(options: MetricOptions | EntryOptions | LocalModel, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise SpecificationError(f"{name} is {value}; it must be at least 1")


def suite_folder(output_dir: Path, suite: str) -> Path:
    """Where the runs of a suite lie in HELM's output path.

    Raises:
        SpecificationError: the suite's name is none for a directory.
    """
    if suite in ("", ".", "..") or "/" in suite or "\0" in suite:
        raise SpecificationError(f"the suite {suite!r} is no name of a directory")
    return output_dir / "runs" / suite
