"""HELM's adaptation: how instances become requests, and the requests' results."""

from __future__ import annotations

from functools import cached_property
from typing import Any, cast

import msgspec

from assay.errors import FileFormatError
from assay.helm.scenario import Instance, PerturbationDescription
from assay.helm.structs import HelmStruct, Int64, Number, keep_as_lists

InstanceKey = tuple[str, str | None, str | None, PerturbationDescription | None]


class Substitution(HelmStruct, frozen=True):
    """A regular expression and its replacement, applied to a finished prompt."""

    source: str
    target: str


class AdapterSpec(HelmStruct, frozen=True):
    """How a scenario's instances are turned into requests."""

    method: str = ""
    global_prefix: str = ""
    global_suffix: str = ""
    instructions: str = ""
    input_prefix: str = "Input: "
    input_suffix: str = "\n"
    reference_prefix: str = "A. "
    reference_prefix_characters: list[str] | None = None
    reference_suffix: str = "\n"
    chain_of_thought_prefix: str = ""
    chain_of_thought_suffix: str = "\n"
    output_prefix: str = "Output: "
    output_suffix: str = "\n"
    instance_prefix: str = "\n"
    substitutions: list[Substitution] = msgspec.field(default_factory=list)
    max_train_instances: Int64 = 5
    max_eval_instances: Int64 | None = None
    num_outputs: Int64 = 5
    num_train_trials: Int64 = 1
    num_trials: Int64 = 1
    sample_train: bool = True
    model_deployment: str = ""
    model: str = ""
    temperature: Number = 1
    max_tokens: Int64 = 100
    stop_sequences: list[str] = msgspec.field(default_factory=list)
    random: str | None = None
    multi_label: bool = False
    image_generation_parameters: dict[str, Any] | None = None
    reeval_parameters: dict[str, Any] | None = None
    eval_splits: list[str] | None = None
    output_mapping_pattern: str | None = None

    @property
    def predates_deployments(self) -> bool:
        """Whether HELM 0.2 wrote this: it had models, but no deployments yet."""
        return any(name == "model_deployment" for name, _ in self.extras or ())


class Request(HelmStruct, frozen=True):
    """One call to a model."""

    model_deployment: str = ""
    model: str = ""
    embedding: bool = False
    prompt: str = ""
    temperature: Number = 1.0
    num_completions: Int64 = 1
    top_k_per_token: Int64 = 1
    max_tokens: Int64 = 100
    stop_sequences: list[str] = msgspec.field(default_factory=list)
    echo_prompt: bool = False
    top_p: Number = 1
    presence_penalty: Number = 0
    frequency_penalty: Number = 0
    random: str | None = None
    messages: list[dict[str, Any]] | None = None
    multimodal_prompt: dict[str, Any] | None = None
    image_generation_parameters: dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None

    @property
    def model_host(self) -> str:
        """The first part of the deployment's name: who serves the model."""
        return self.model_deployment.partition("/")[0]

    @property
    def model_engine(self) -> str:
        """The model's name without its creator."""
        return self.model.partition("/")[2]


class Token(HelmStruct, frozen=True):
    """One token of a completion."""

    text: str
    logprob: Number
    top_logprobs: dict[str, Number] | None = None
    """Only in files of HELM 0.2."""


class GeneratedOutput(HelmStruct, frozen=True):
    """One completion."""

    text: str
    logprob: Number
    """Sum over the tokens, in nats."""
    tokens: list[Token]
    finish_reason: dict[str, Any] | None = None
    multimodal_content: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


class RequestResult(HelmStruct, frozen=True):
    """The result of a request."""

    success: bool
    embedding: list[Number]
    completions: list[GeneratedOutput]
    cached: bool
    request_time: Number | None = None
    """Seconds."""
    request_datetime: Int64 | None = None
    """Seconds since 1970."""
    error: str | None = None
    error_flags: dict[str, Any] | None = None
    batch_size: Int64 | None = None
    batch_request_time: Number | None = None
    """Seconds that the whole batch took."""


class RequestState(HelmStruct, frozen=True, kw_only=True):
    """A request, the instance it was made for, and its result."""

    instance: Instance
    reference_index: Int64 | None = None
    request_mode: str | None = None
    """``original`` or ``calibration`` where each reference has its own request."""
    train_trial_index: Int64
    output_mapping: dict[str, str] | None = None
    """Maps the letter that the model answers to the choice's text."""
    request: Request
    result: RequestResult | None = None
    num_train_instances: Int64
    prompt_truncated: bool
    num_conditioning_tokens: Int64 = 0
    annotations: dict[str, Any] | None = None

    @property
    def answer(self) -> RequestResult:
        """The result of an answered request."""
        return cast("RequestResult", self.result)

    @property
    def is_answered(self) -> bool:
        """Whether there is a completion to score."""
        return self.result is not None and bool(self.result.completions)


def instance_key(instance: Instance) -> InstanceKey:
    """Identifies an instance within a run.

    Raises:
        FileFormatError: The instance has no id.
    """
    if instance.id is None:
        raise FileFormatError(f"an instance has no id (its input begins {instance.input.text[:40]!r})")
    return instance.id, instance.split, instance.sub_split, instance.perturbation


class ScenarioState(HelmStruct, frozen=True, dict=True, gc=True):
    """All requests of a run."""

    adapter_spec: AdapterSpec
    request_states: list[RequestState]
    annotator_specs: list[dict[str, Any]] | None = None

    def __post_init__(self) -> None:
        keep_as_lists(self, "request_states")

    @cached_property
    def instances(self) -> list[Instance]:
        """Each instance once, in the order of its first request."""
        first: dict[InstanceKey, Instance] = {}
        for state in self.request_states:
            first.setdefault(instance_key(state.instance), state.instance)
        return list(first.values())

    def mentions(self, key: str) -> bool:
        """Whether any record has an object under this key."""
        return f'"{key}": {{'.encode() in self.to_json()
