"""Converts a sample of an lm-eval task to HELM's request states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.helm.adaptation import AdapterSpec, GeneratedOutput, Request, RequestResult, RequestState, Token
from assay.helm.scenario import CORRECT_TAG, Input, Instance, Output, Reference
from assay.types import USUAL_MAX_GEN_TOKS, Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.runs.samples import Prompt, RunSample
    from assay.types import Response

GENERATION = "generation"
CHOICES = "multiple_choice_separate_original"
SCORING = "language_modeling"


def method_of(sample: RunSample) -> str:
    """HELM's adaptation method that corresponds to a sample's requests."""
    if all(isinstance(answer.logprob, int | float) for answer in sample.answers) and sample.answers:
        return CHOICES if len(sample.prompts) > 1 else SCORING
    return GENERATION


def adapter_spec(sample: RunSample, method: str, model: str, num_fewshot: int) -> AdapterSpec:
    """The adapter specification of a task, as far as HELM has fields for it.

    Args:
        sample: a sample of the task.
        method: its :func:`method_of`.
        model: the model's name in HELM's files.
        num_fewshot: the number of few-shot examples.
    """
    request = _request(sample.prompts[0], method, model, _repeats(sample))
    return AdapterSpec(
        method=method,
        input_prefix="",
        input_suffix="",
        output_prefix="",
        output_suffix="",
        instance_prefix="",
        max_train_instances=num_fewshot,
        num_outputs=request.num_completions,
        model_deployment=model,
        model=model,
        temperature=request.temperature,
        max_tokens=request.max_tokens,
        stop_sequences=request.stop_sequences,
    )


def request_states(sample: RunSample, method: str, spec: AdapterSpec, split: str) -> Iterator[RequestState]:
    """A sample's requests with their results.

    Args:
        sample: one that has a score.
        method: its :func:`method_of`.
        spec: its :func:`adapter_spec`.
        split: HELM's name for the document's split.
    """
    instance = _instance(sample, method, split)
    repeats = _repeats(sample)
    for index, prompt in enumerate(sample.prompts):
        first = index * repeats
        times = sample.times[first : first + repeats]
        yield RequestState(
            instance=instance,
            reference_index=index if method == CHOICES else None,
            request_mode="original" if method == CHOICES else None,
            train_trial_index=0,
            request=_request(prompt, method, spec.model, repeats),
            result=_result(prompt, sample.responses[first : first + repeats], times),
            num_train_instances=spec.max_train_instances,
            prompt_truncated=False,
        )


def _repeats(sample: RunSample) -> int:
    return max(1, len(sample.responses) // len(sample.prompts))


def _instance(sample: RunSample, method: str, split: str) -> Instance:
    first = sample.prompts[0]
    if method == CHOICES:
        choices = [prompt.continuation or "" for prompt in sample.prompts]
        references = [_reference(choice, is_right(sample, index)) for index, choice in enumerate(choices)]
    else:
        references = [_reference(first.continuation or sample.target, is_correct=True)]
    # Few-shot examples in turns of their own do not belong to the question.
    question = first.content if isinstance(first.content, str) else first.content[-1].content
    return Instance(Input(question), references, split=split, id=f"id{sample.doc_id}")


def is_right(sample: RunSample, index: int) -> bool:
    """Whether a choice is the right one: lm-eval's target is the choice's index or its text."""
    choice = (sample.prompts[index].continuation or "").strip()
    return sample.target.strip() in (str(index), choice)


def _reference(text: str, is_correct: bool) -> Reference:
    return Reference(Output(text), [CORRECT_TAG] if is_correct else [])


def _request(prompt: Prompt, method: str, model: str, repeats: int) -> Request:
    if method != GENERATION:
        return Request(model, model, prompt=prompt.text, temperature=0, max_tokens=0, echo_prompt=True)
    content, settings = prompt.content, prompt.settings
    messages = None if isinstance(content, str) else [{"role": turn.role, "content": turn.content} for turn in content]
    return Request(
        model_deployment=model,
        model=model,
        prompt=prompt.text if messages is None else "",
        messages=messages,
        temperature=settings.get("temperature", 0),
        top_p=settings.get("top_p", 1),
        num_completions=repeats,
        max_tokens=int(settings.get("max_tokens") or settings.get("max_gen_toks") or USUAL_MAX_GEN_TOKS),
        stop_sequences=_stops(settings.get("until")),
    )


def _stops(until: Any) -> list[str]:
    return [until] if isinstance(until, str) else [str(stop) for stop in until or ()]


def _result(prompt: Prompt, responses: Sequence[Response], times: Sequence[float]) -> RequestResult:
    answers = [response for response in responses if isinstance(response, Answer)]
    scored = [answer.logprob for answer in answers if answer.logprob is not None]
    # A long text is scored in several windows.
    outputs = [_scored(prompt, sum(scored))] if scored else [_generated(answer) for answer in answers]
    return RequestResult(
        success=True,
        embedding=[],
        completions=outputs,
        cached=False,
        request_time=max((answer.latency for answer in answers), default=0.0),
        request_datetime=int(times[0]) if times else None,
    )


def _scored(prompt: Prompt, logprob: int | float) -> GeneratedOutput:
    """The scored text as a single token, since the run does not keep the tokens' own log-probabilities."""
    token = Token(prompt.text if prompt.continuation is None else prompt.continuation, logprob)
    return GeneratedOutput(prompt.text, logprob, [token])


def _generated(answer: Answer) -> GeneratedOutput:
    return GeneratedOutput(
        text=answer.text or "",
        logprob=0,
        tokens=[],
        finish_reason=None if answer.finish_reason is None else {"reason": answer.finish_reason},
        thinking=None if answer.reasoning is None else {"text": answer.reasoning},
    )
