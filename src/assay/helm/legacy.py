"""What programs written for HELM 0.2.1 import from it, by the names of that release.

A program that builds a run, has an engine of its own answer it, and writes HELM's files needs no HELM in its process:
:func:`build_run` has the installed HELM build the run in a process of its own. Records are those of :mod:`assay.helm`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._util.storage import write_error
from assay.errors import SpecificationError
from assay.helm.adaptation import (
    AdapterSpec,
    GeneratedOutput,
    Request,
    RequestResult,
    RequestState,
    ScenarioState,
    Token,
)
from assay.helm.general import asdict_without_nones, write
from assay.helm.metrics.base import Metric
from assay.helm.metrics.legacy import TokensMetric
from assay.helm.metrics.registry import create_metric
from assay.helm.options import EntryOptions
from assay.helm.run_directory import run_entry
from assay.helm.run_spec import MetricSpec, RunSpec
from assay.helm.running.entry import Entry
from assay.helm.running.entry import build_run as build_with_helm
from assay.helm.running.results import truncate_sequence
from assay.helm.scenario import Instance, Scenario, ScenarioSpec
from assay.helm.stats import MetricName, MetricResult, PerInstanceStats, Stat
from assay.helm.tokenization import (
    DecodeRequest,
    DecodeRequestResult,
    OptTokenizer,
    TokenizationRequest,
    TokenizationRequestResult,
    TokenizationToken,
)

if TYPE_CHECKING:
    import os

Sequence = GeneratedOutput
"""One completion, as HELM 0.2.1 called it."""

_DEFAULT_ENTRY = EntryOptions()


@dataclass(frozen=True)
class BuiltRun:
    """A run that HELM built: what its adapter made of the scenario's instances."""

    run_spec: RunSpec
    scenario: Scenario
    scenario_state: ScenarioState
    """The requests; none has a result."""


def build_run(
    description: str,
    model: str,
    tokenizer: str,
    output_dir: str | os.PathLike[str],
    entry: EntryOptions = _DEFAULT_ENTRY,
) -> BuiltRun:
    """Do what HELM 0.2.1's ``run_entries_to_run_specs``, ``create_scenario`` and ``AdapterFactory`` did together.

    Args:
        description: as for helm-run, for example ``mmlu:subject=anatomy``.
        model: the model's name in HELM's files, ``CREATOR/NAME``.
        tokenizer: directory or name on the hub of the tokenizer with which HELM cuts prompts.
        output_dir: HELM's output path, in which it keeps scenarios' data.
        entry: number of instances and trials, HELM's plug-ins, and the interpreter that has crfm-helm.

    Raises:
        MissingDependencyError: crfm-helm is not installed there.
        SpecificationError: HELM cannot build the run.
    """
    run = build_with_helm(
        Entry(
            description=description,
            model=model,
            is_named=True,
            tokenizer=tokenizer,
            max_eval_instances=entry.max_eval_instances,
            num_train_trials=entry.num_train_trials,
            plugins=entry.plugins,
        ),
        Path(output_dir),
        entry.helm_python,
    )
    if not isinstance(run.scenario, Scenario):
        raise SpecificationError(f"HELM built no scenario for {description!r}")
    return BuiltRun(run.run_spec, run.scenario, run.state)


class WindowService:
    """A model's context length, as HELM's adapters ask for it.

    Args:
        tokenizer_service: the model's tokenizer.
        max_sequence_length: the context length in tokens; by default as the tokenizer says.
    """

    def __init__(self, tokenizer_service: OptTokenizer, max_sequence_length: int | None = None) -> None:
        self._service = tokenizer_service
        self.max_sequence_length: int = max_sequence_length or tokenizer_service.tokenizer.model_max_length

    def get_num_tokens(self, text: str) -> int:
        """The text's number of tokens."""
        return len(self._ids(text))

    def fits_within_context_window(self, text: str, expected_completion_token_length: int = 0) -> bool:
        """Whether the text leaves room for so many more tokens."""
        return self.get_num_tokens(text) + expected_completion_token_length <= self.max_sequence_length

    def truncate_from_right(self, text: str, expected_completion_token_length: int = 0) -> str:
        """The text cut at its end so that it leaves room for so many more tokens."""
        ids = self._ids(text)[: max(0, self.max_sequence_length - expected_completion_token_length)]
        while not self.fits_within_context_window(text, expected_completion_token_length) and ids:
            # Decoded and encoded again, a text may have more tokens than before.
            text = self._service.decode(DecodeRequest(ids, self._service.name)).text
            ids = ids[:-1]
        return text

    def _ids(self, text: str) -> list[Any]:
        request = TokenizationRequest(text, self._service.name, encode=True)
        return [token.value for token in self._service.tokenize(request).tokens]


def ensure_directory_exists(path: str | os.PathLike[str]) -> None:
    """Make a directory and those above it, unless they are there.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(f"the directory {path} cannot be made", error) from None


__all__ = [
    "AdapterSpec",
    "BuiltRun",
    "DecodeRequest",
    "DecodeRequestResult",
    "EntryOptions",
    "Instance",
    "Metric",
    "MetricName",
    "MetricResult",
    "MetricSpec",
    "OptTokenizer",
    "PerInstanceStats",
    "Request",
    "RequestResult",
    "RequestState",
    "RunSpec",
    "Scenario",
    "ScenarioSpec",
    "ScenarioState",
    "Sequence",
    "Stat",
    "Token",
    "TokenizationRequest",
    "TokenizationRequestResult",
    "TokenizationToken",
    "TokensMetric",
    "WindowService",
    "asdict_without_nones",
    "build_run",
    "create_metric",
    "ensure_directory_exists",
    "run_entry",
    "truncate_sequence",
    "write",
]
