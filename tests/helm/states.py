"""Scenario states made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from assay.helm import (
    AdapterSpec,
    GeneratedOutput,
    Input,
    Instance,
    Output,
    PerturbationDescription,
    Reference,
    Request,
    RequestResult,
    RequestState,
    ScenarioState,
    Token,
)
from assay.helm.stats import PerInstanceStats, copied_on_read


def result(*texts: str, logprob: float = -0.5) -> RequestResult:
    """A result with a completion for each text, one token each."""
    completions = [GeneratedOutput(text, logprob, [Token(text, logprob)], {"reason": "stop"}) for text in texts]
    return RequestResult(True, [], completions, False, 0.25, 0)


def generation(
    number: int,
    answer: RequestResult | None,
    golds: Sequence[str] = ("yes",),
    trial: int = 0,
    perturbation: PerturbationDescription | None = None,
) -> RequestState:
    """A request for an answer."""
    references = [Reference(Output(gold), ["correct"]) for gold in golds]
    return RequestState(
        instance=Instance(
            Input(f"question {number}"), references, split="test", id=f"id{number}", perturbation=perturbation
        ),
        train_trial_index=trial,
        request=Request(model="m/m", model_deployment="m/m", prompt=f"question {number}:"),
        result=answer,
        num_train_instances=0,
        prompt_truncated=False,
    )


def state(states: Sequence[RequestState], method: str = "generation", **settings: int) -> ScenarioState:
    """A run of these requests, with one completion and one trial unless told otherwise."""
    spec = AdapterSpec(method=method, model="m/m", model_deployment="m/m", **{"num_outputs": 1, **settings})  # type: ignore[arg-type]
    return ScenarioState(spec, list(states))


class KeptRecords:
    """Keeps per-instance statistics in memory."""

    def __init__(self) -> None:
        self.records: list[PerInstanceStats] = []

    def __call__(self, record: PerInstanceStats, /) -> None:
        self.records.append(copied_on_read(record))

    def reset(self) -> None:
        self.records.clear()
