"""The results document: the structs by which ``results_<time>.json`` is written, checked and read.

lm-eval's sections come first, in its order, then Assay's part under the key ``assay``. Fields that lm-eval's own files
may lack have a default. Fields that are never read back have the type ``Any``, so that files of every release are
accepted.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from assay.client.preflight import Agreement  # noqa: TC001 - msgspec resolves the annotations
from assay.client.server_info import ServerInfo  # noqa: TC001
from assay.results.check_results import CheckResult, EvidenceCourse  # noqa: TC001
from assay.results.groups import leaves, own_ancestor
from assay.sandbox.program import Confinement  # noqa: TC001
from assay.scoring.corrections import Correction  # noqa: TC001
from assay.scoring.measure import Score  # noqa: TC001
from assay.tasks.file_hashes import DataFile  # noqa: TC001
from assay.types import (
    FailedSample,  # noqa: TC001
    StoppedEarly,  # noqa: TC001
)

Entries = dict[str, dict[str, Any]]
"""By task or group, values by name."""

_Whole = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
_Quantiles = dict[str, _Seconds | None]
"""By name, such as ``p50``."""


class ReasoningTotals(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a run's answers was reasoning."""

    answers: _Whole
    """Answers with reasoning."""
    tokens: _Whole | UnsetType = UNSET
    """Tokens of reasoning, if the server counts them."""
    cut_off: _Whole
    """Answers that reached their token limit before the reasoning ended."""
    over_budget: _Whole | UnsetType | None = UNSET
    """Answers with more tokens of reasoning than ``thinking_budget`` allows; None if the server does not count them."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a run's responses."""

    answers: _Whole
    failures: dict[str, int] = {}
    """By cause."""
    attempts: _Whole
    prompt_tokens: _Whole
    completion_tokens: _Whole
    answers_without_usage: _Whole = 0
    latency_seconds: _Quantiles = {}
    reasoning: ReasoningTotals | UnsetType = UNSET
    ttft_seconds: _Quantiles | UnsetType = UNSET
    """Times to the first token, if answers were streamed."""
    other_models: dict[str, int] | UnsetType = UNSET
    """Answers by the model that they name, if it is not the one asked for."""
    seconds: _Seconds
    """Duration of the run, or of its part since it was resumed."""
    concurrency: dict[str, Any] | UnsetType = UNSET


class EndpointShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one of several endpoints contributed."""

    url: str | None
    """None: answers from a time when the run had a single endpoint."""
    answers: int
    share: float | None
    failures: dict[str, int]
    """By cause."""
    prompt_tokens: int
    completion_tokens: int
    median_latency_seconds: float | None
    requests: int
    faults: dict[str, int]
    """Failed attempts by cause."""
    times_set_aside: int
    short_prompts: Agreement | None


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that must be the same for the numbers of two runs to be comparable."""

    specification: dict[str, Any] | None = None
    """Plain data of a :class:`assay.types.Specification`, because another release may have other settings."""
    server: ServerInfo | None = None
    data: dict[str, tuple[DataFile, ...]] | None = None
    versions: dict[str, str] | None = None
    """Versions of Assay, Python and the packages whose code makes prompts and scores."""
    journal: str | None = None
    """Name of the journal, in the folder ``journal`` beside the results file."""
    sandbox: Confinement | None = None

    @property
    def model(self) -> dict[str, Any]:
        """The specification's settings of the model."""
        model = (self.specification or {}).get("model")
        return model if isinstance(model, dict) else {}


class ScoredAgain(msgspec.Struct, frozen=True, kw_only=True):
    """Which run's answers were scored again."""

    run: str = ""
    """Name of its results file."""
    journal: str | None = None
    """Path of the journal, relative to the new results file's folder."""
    tasks: dict[str, str] = {}
    """By task that scores now, the run's task whose answers it scores."""
    changed_prompts: dict[str, int] = {}
    """By task, how many documents would be asked with another prompt now."""


class _Probe(msgspec.Struct):
    """The part of a probe's report that is read back."""

    findings: Entries = {}


class AssayPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What Assay adds to lm-eval's sections. A field that is None is not in the file."""

    scores: tuple[Score, ...] | None = None
    corrections: tuple[Correction, ...] | None = None
    checks: tuple[CheckResult, ...] | None = None
    failures: tuple[FailedSample, ...] | None = None
    fallbacks: dict[str, dict[str, list[Any]]] | None = None
    """By task and filter, what the filter returns if it finds no answer."""
    totals: Totals | None = None
    provenance: Provenance | None = None
    weighted_by_size: dict[str, dict[str, bool]] | None = None
    """By group and metric key, whether the aggregate weights tasks by their documents."""
    probe: dict[str, Any] | None = None
    """What the server supports; see :class:`assay.client.probe.report.ProbeReport`."""
    endpoints: tuple[EndpointShare, ...] | None = None
    evidence: tuple[EvidenceCourse, ...] | None = None
    early_stopping: StoppedEarly | None = None
    triage: dict[str, Any] | None = None
    """See :attr:`assay.diagnosis.findings.Triage.recorded`. Plain data, because a later release may have more causes,
    and the file must still be readable."""
    rescored: ScoredAgain | None = None

    def __post_init__(self) -> None:
        msgspec.convert({"assay": {"probe": self.probe}}, dict[str, dict[str, _Probe | None]])
        for check in self.checks or ():
            if [check.min, check.max, check.baseline].count(None) != 2:
                raise ValueError("a check demands nothing, or several things")
            if (check.baseline is None) != (check.margin is None):
                raise ValueError("a check has a baseline without a margin, or a margin without a baseline")

    @property
    def probe_findings(self) -> Entries:
        """By capability, what the probe found."""
        findings: Entries = (self.probe or {}).get("findings", {})
        return findings


class SampleCount(msgspec.Struct, frozen=True, kw_only=True):
    """A task's documents."""

    original: int | None = None
    """How many the task has."""
    effective: int
    """How many were scored."""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the run, as lm-eval writes them."""

    model: Any = None
    model_args: Any = None
    batch_size: Any = None
    batch_sizes: Any = None
    device: Any = None
    use_cache: Any = None
    limit: float | None = None
    bootstrap_iters: Any = None
    gen_kwargs: Any = None
    random_seed: Any = None
    numpy_seed: Any = None
    torch_seed: Any = None
    fewshot_seed: Any = None


class _Filter(msgspec.Struct):
    function: str


class _Filters(msgspec.Struct):
    filter: list[_Filter]
    name: Any


class _TaskConfig(msgspec.Struct):
    """The part of a task's configuration that is checked."""

    filter_list: list[_Filters] | None = None


class ScoredSections(msgspec.Struct, frozen=True, kw_only=True, rename={"n_shot": "n-shot", "n_samples": "n-samples"}):
    """The sections that lm-eval computes from samples."""

    results: Entries
    groups: Entries | UnsetType = UNSET
    """The results of groups; absent if there are none."""
    group_subtasks: dict[str, list[str]] = {}
    configs: Entries = {}
    versions: dict[str, Any] = {}
    n_shot: dict[str, Any] = {}
    higher_is_better: Entries = {}
    """By task and metric, without its filter."""
    n_samples: dict[str, SampleCount] = {}

    def __post_init__(self) -> None:
        msgspec.convert({"configs": self.configs}, dict[str, dict[str, _TaskConfig]])
        if looping := own_ancestor(self.group_subtasks):
            raise ValueError(f"group '{looping}' is in itself")

    def leaves(self, name: str) -> list[str]:
        """The tasks of a group and its subgroups, each once; for a task, its own name."""
        return leaves(name, self.group_subtasks)


class ResultsDocument(ScoredSections, frozen=True, kw_only=True):
    """A whole results file."""

    config: RunConfig | None = None
    git_hash: Any = None
    date: Any = None
    pretty_env_info: Any = None
    transformers_version: Any = None
    lm_eval_version: Any = None
    upper_git_hash: Any = None
    tokenizer_pad_token: Any = UNSET
    tokenizer_eos_token: Any = UNSET
    tokenizer_bos_token: Any = UNSET
    eot_token_id: Any = UNSET
    max_length: Any = UNSET
    task_hashes: Any = UNSET
    model_source: Any = None
    model_name: str | None = None
    model_name_sanitized: Any = None
    system_instruction: str | None = None
    system_instruction_sha: Any = None
    fewshot_as_multiturn: Any = None
    chat_template: Any = None
    chat_template_sha: Any = None
    total_evaluation_time_seconds: Any = None
    assay: AssayPart | None = None
    """None in lm-eval's own files."""

    @property
    def additions(self) -> AssayPart:
        """Assay's part; an empty one for lm-eval's files."""
        return self.assay or AssayPart()

    @property
    def provenance(self) -> Provenance:
        """The provenance, as far as the file has it."""
        return self.additions.provenance or Provenance()

    def scored_nothing(self, task: str) -> bool:
        """Whether the file says that no document of a task has a score."""
        return task in self.n_samples and self.n_samples[task].effective == 0

    def as_json(self) -> dict[str, Any]:
        """The document as plain data, as it is written."""
        from lm_eval.utils import handle_non_serializable

        plain: dict[str, Any] = msgspec.to_builtins(self, enc_hook=handle_non_serializable)
        return plain
