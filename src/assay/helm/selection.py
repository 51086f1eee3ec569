"""Finds the run, the metrics and the tokenizer that a user names."""

from __future__ import annotations

import difflib
import importlib
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import AssayError, FileFormatError, SpecificationError, UnknownMetricError
from assay.helm.metrics.registry import NATIVE
from assay.helm.run_directory import RUN_SPEC, SCENARIO, SCENARIO_STATE, read_run_spec
from assay.helm.run_spec import MetricSpec, RunSpec
from assay.helm.scoring.code import CODE_SCORES
from assay.helm.scoring.scorer import SCORES
from assay.helm.state_file import StateFile
from assay.helm.tokenization import SAMPLE_TEXT, EncoderService, OptTokenizer, TokenCounter, TokenizerService

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import ModuleType

_GENERATION = "helm.benchmark.metrics.basic_metrics.BasicGenerationMetric"


@dataclass(frozen=True)
class SavedRun:
    """A run on disk."""

    folder: Path
    run_spec: RunSpec | None
    scenario: Path | None
    state: StateFile


def find_run(path: Path, run_spec: Path | None = None) -> SavedRun:
    """Find a run by its directory or its ``scenario_state.json``.

    Args:
        path: The directory or the file.
        run_spec: The run's specification, if it is not beside the state.

    Raises:
        FileFormatError: A file is missing or damaged.
    """
    state_path = path / SCENARIO_STATE if path.is_dir() else path
    if not state_path.is_file():
        what = f"the directory {path} has no {SCENARIO_STATE}" if path.is_dir() else f"there is no file {path}"
        raise FileFormatError(what)
    folder = state_path.parent
    spec_path = run_spec or (folder / RUN_SPEC if (folder / RUN_SPEC).is_file() else None)
    scenario = folder / SCENARIO
    return SavedRun(
        folder,
        None if spec_path is None else read_run_spec(spec_path),
        scenario if scenario.is_file() else None,
        StateFile(state_path),
    )


def find_code_tests(folder: Path) -> Path | None:
    """HumanEval.jsonl in the output path that a run's directory lies in, if HELM has put it there."""
    kept = folder.resolve().parents[2:3]  # benchmark_output/runs/SUITE/RUN
    path = kept[0] / "scenarios" / "code" / "HumanEval.jsonl" if kept else None
    return path if path is not None and path.is_file() else None


def select_metrics(names: Sequence[str], run_spec: RunSpec | None) -> list[MetricSpec]:
    """Find metrics by the names that a user gives.

    A name is a score (``exact_match``) or a class, with or without its module. A class that the run specification names
    gets the arguments given there.

    Raises:
        UnknownMetricError: There is no such metric.
    """
    scores: list[str] = []
    specs: list[MetricSpec] = []
    for name in names:
        if name in SCORES or name in CODE_SCORES:
            scores.append(name)
        else:
            specs += _by_class(name, run_spec)
    generation = [MetricSpec(_GENERATION, {"names": scores})] if scores else []
    return [*generation, *specs]


def _by_class(name: str, run_spec: RunSpec | None) -> list[MetricSpec]:
    ours = [spec for spec in run_spec.metric_specs if name in _names_of(spec.class_name)] if run_spec else []
    if ours:
        return ours
    known = [class_name for class_name in NATIVE if name in _names_of(class_name)]
    if known or "." in name:
        return [MetricSpec(known[0] if known else name)]
    near = difflib.get_close_matches(name, [*SCORES, *(class_name.rpartition(".")[2] for class_name in NATIVE)], n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UnknownMetricError(f"there is no metric {name!r}{hint}")


def _names_of(class_name: str) -> tuple[str, str]:
    return class_name, class_name.rpartition(".")[2]


def import_plugins(modules: Sequence[str]) -> None:
    """Import modules that define metrics.

    Raises:
        SpecificationError: One of them cannot be imported.
    """
    for name in modules:
        with _loading(f"the plugin {name!r}"):
            _users_module(name)


@contextmanager
def _loading(what: str) -> Iterator[None]:
    """Turn every error of a user's code while it is loaded into one line that names it."""
    try:
        yield
    except SystemExit as error:
        raise SpecificationError(
            f"{what} cannot be loaded: it calls sys.exit({error.code!r}) when it is imported"
        ) from None
    except Exception as error:
        raise SpecificationError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from None


def _users_module(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    return importlib.import_module(name)


def load_tokenizer(description: str) -> TokenizerService:
    """Load a tokenizer.

    Args:
        description: ``hf:PATH`` for a Hugging Face tokenizer, or ``MODULE:OBJECT`` for an object that has ``encode``
            and ``decode``, or a class of such objects that takes no arguments.

    Raises:
        SpecificationError: There is no such tokenizer, or it fails.
        MissingDependencyError: transformers is not installed.
    """
    kind, _, name = description.partition(":")
    if not kind or not name:
        raise SpecificationError(f"the tokenizer {description!r} is neither hf:PATH nor MODULE:OBJECT")
    if kind == "hf":
        try:
            return OptTokenizer(name)
        except AssayError:
            raise
        except Exception as error:  # transformers raises anything for a damaged file
            raise SpecificationError(
                f"the tokenizer {name!r} cannot be loaded: {' '.join(str(error).split())}"
            ) from None
    with _loading(f"the tokenizer {description!r}"):
        found = getattr(_users_module(kind), name)
        encoder = found() if isinstance(found, type) else found
    if not callable(getattr(encoder, "encode", None)) or not callable(getattr(encoder, "decode", None)):
        raise SpecificationError(f"the tokenizer {description!r} has no encode and decode")
    service = EncoderService(encoder)
    TokenCounter(service, description).count_ids(SAMPLE_TEXT)  # so that it fails before anything is asked or scored
    return service
