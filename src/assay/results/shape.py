"""The shape of a results file as far as it is read back, so that a damaged or foreign one is refused in one place.

What is not named here may have any shape; most of what is named may be missing, as in files of lm-eval's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from assay.errors import FileFormatError
from assay.results.groups import own_ancestor
from assay.types import FailureCause  # noqa: TC001 - msgspec resolves the annotations

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MetricKey = Annotated[str, msgspec.Meta(pattern=",")]
_Whole = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
_Sections = dict[str, dict[str, Any]]


class _Count(msgspec.Struct):
    effective: int


class _Check(msgspec.Struct):
    task: str
    metric: _MetricKey
    verdict: str
    min: float | None = None
    max: float | None = None
    baseline: str | None = None
    margin: float | None = None

    def __post_init__(self) -> None:
        if [self.min, self.max, self.baseline].count(None) != 2 or (self.baseline is None) != (self.margin is None):
            raise ValueError("a check demands nothing, or several things")


class _Failure(msgspec.Struct):
    task: str
    doc_id: int
    cause: FailureCause | msgspec.UnsetType = msgspec.UNSET
    message: str = ""


class _Named(msgspec.Struct):
    metric: _MetricKey


class _Totals(msgspec.Struct):
    answers: _Whole
    attempts: _Whole
    prompt_tokens: _Whole
    completion_tokens: _Whole
    seconds: _Seconds
    answers_without_usage: _Whole = 0
    latency_seconds: dict[str, _Seconds | None] = {}
    ttft_seconds: dict[str, _Seconds | None] = {}
    other_models: dict[str, int] = {}


class _Server(msgspec.Struct):
    models: list[dict[str, Any]] | None = None


class _Specification(msgspec.Struct):
    model: dict[str, Any] | None = None


class _Provenance(msgspec.Struct):
    journal: str | None = None
    server: _Server | None = None
    specification: _Specification | None = None
    versions: dict[str, Any] = {}


class _Probe(msgspec.Struct):
    findings: _Sections = {}


class _Rescored(msgspec.Struct):
    journal: str | None = None


class _Assay(msgspec.Struct):
    scores: list[_Named] = []
    checks: list[_Check] = []
    failures: list[_Failure] = []
    fallbacks: dict[str, dict[str, list[Any]]] = {}
    totals: _Totals | None = None
    provenance: _Provenance | None = None
    probe: _Probe | None = None
    rescored: _Rescored | None = None
    endpoints: list[dict[str, Any]] = []
    weighted_by_size: dict[str, dict[str, bool]] = {}


class _Filter(msgspec.Struct):
    function: str


class _Filters(msgspec.Struct):
    filter: list[_Filter]
    name: Any


class _Config(msgspec.Struct):
    filter_list: list[_Filters] | None = None


class _Results(msgspec.Struct, rename={"n_samples": "n-samples", "n_shot": "n-shot"}):
    results: _Sections
    configs: dict[str, _Config] = {}
    n_shot: dict[str, Any] = {}
    group_subtasks: dict[str, list[str]] = {}
    higher_is_better: _Sections = {}
    n_samples: dict[str, _Count] = {}
    versions: dict[str, Any] = {}
    model_name: str | None = None
    system_instruction: str | None = None
    assay: _Assay | None = None


def refuse_misshapen(document: Mapping[str, Any], file: str | Path) -> None:
    """Refuse a results document in which something that is read has another shape than it is written in.

    Args:
        document: what the file's JSON says.
        file: its name, for the message.

    Raises:
        FileFormatError: names the place in the document.
    """
    try:
        has_ours = isinstance(document.get("assay"), dict)
        shape = msgspec.convert(document if has_ours else {**document, "assay": None}, _Results)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise FileFormatError(f"{file} is no results file, or damaged: {error}") from error
    if looping := own_ancestor(shape.group_subtasks):
        raise FileFormatError(f"{file} is damaged: group '{looping}' is in itself")
