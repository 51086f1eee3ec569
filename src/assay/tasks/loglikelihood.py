"""Log-likelihood requests: the bodies that ask for a prompt's own log-probabilities, and lm-eval's view of the answers.

lm-eval asks for two things. ``loglikelihood`` wants the log-probability of a continuation after a context; a
multiple-choice question is one of these for each choice. ``loglikelihood_rolling`` wants that of a whole text, which
goes in several windows where it is longer than the model's context.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from assay.client.echo_probe import EchoTrial
from assay.client.native_endpoints import llama_cpp_body, sglang_body
from assay.errors import UnsupportedTaskError
from assay.tasks.encoding import PromptEncoder
from assay.tasks.index import task_index
from assay.tasks.request_kinds import request_kinds
from assay.types import LogprobSource, ModelSpec, TextTail, TokenSpan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.tasks.encoding import ScoredTokens
    from assay.tasks.index import TaskEntry, TaskIndex
    from assay.tasks.protocol import Task
    from assay.tasks.tokenizer import Tokenizer
    from assay.types import Answer

Scored = TokenSpan | TextTail


def needs_loglikelihood(tasks: Mapping[str, Task]) -> bool:
    """Whether any of lm-eval's `tasks` asks for log-likelihoods."""
    return any(request_kinds(task) - {"generate_until"} for task in tasks.values())


_GENERATIVE_ENDINGS = ("_generative", "_chat")
"""Of the names of tasks that ask the questions of a multiple-choice task and read the answer's text."""


def generative_variant(name: str, index: TaskIndex) -> str | None:
    """The task or group that asks the same questions, and reads the answer's text; None where there is none."""
    return next((name + ending for ending in _GENERATIVE_ENDINGS if name + ending in index.entries), None)


def refuse_unscorable(
    tasks: Mapping[str, Task], model: ModelSpec, asked_for: Sequence[str], include_path: str | None = None
) -> None:
    """Refuse tasks whose log-likelihoods the endpoint cannot give, before anything is asked.

    Args:
        tasks: lm-eval's Task objects by name.
        model: which endpoint is asked.
        asked_for: the names of tasks and groups that the user gave.
        include_path: a folder of the user's own tasks, one of which may do instead.

    Raises:
        UnsupportedTaskError: names the task, and what to do instead.
    """
    for name, task in tasks.items():
        kinds = request_kinds(task)
        if model.endpoint == "chat" and kinds - {"generate_until"}:
            also = "also " if "generate_until" in kinds else ""
            how = f"{also}scored by log-likelihood ({task.OUTPUT_TYPE or ', '.join(sorted(kinds))})"
            raise _not_in_chat(name, how, asked_for, task_index(include_path))
        if "loglikelihood_rolling" in kinds and model.tokenizer is None and model.local is None:
            raise UnsupportedTaskError(
                f"task '{name}' scores long texts in windows that are counted in tokens; "
                "name the model's tokenizer (--tokenizer)"
            )


def refuse_unscorable_entries(
    entries: Sequence[TaskEntry], model: ModelSpec, asked_for: Sequence[str], index: TaskIndex
) -> None:
    """As :func:`refuse_unscorable`, for tasks that are not loaded, as far as their YAML tells.

    Args:
        entries: the tasks.
        model: which endpoint is asked.
        asked_for: the names of tasks and groups that the user gave.
        index: all tasks there are.

    Raises:
        UnsupportedTaskError: names the task, and what to do instead.
    """
    for entry in entries if model.endpoint == "chat" else ():
        if entry.output_type not in (None, "generate_until"):
            raise _not_in_chat(entry.name, f"scored by log-likelihood ({entry.output_type})", asked_for, index)


def _not_in_chat(name: str, how: str, asked_for: Sequence[str], index: TaskIndex) -> UnsupportedTaskError:
    variant = next(filter(None, (generative_variant(each, index) for each in (*asked_for, name))), None)
    instead = f"ask for {variant}, its generative variant" if variant else "choose a generative task"
    return UnsupportedTaskError(
        f"task '{name}' is {how}, which chat completions cannot give; ask the completions endpoint (--completions), or "
        f"{instead}"
    )


class LoglikelihoodBodies:
    """Writes the requests for lm-eval's log-likelihood instances.

    Args:
        model: names the model and the seed, and says whether prompts go as token ids.
        tokenizer: the model's; without one the server's own tokens count.
        source: how the server returns a prompt's log-probabilities.
    """

    def __init__(self, model: ModelSpec, tokenizer: Tokenizer | None, source: LogprobSource) -> None:
        self._tokenizer = tokenizer
        self._decode = None if tokenizer is None or model.tokenized_requests else tokenizer.decode
        self._encoder = (
            None if tokenizer is None else PromptEncoder(tokenizer, model.max_length, is_local=model.local is not None)
        )
        self._source = source
        # lm-eval's keys in its order.
        self._before_prompt = f'{{"model": {json.dumps(model.model)}, "prompt": '
        self._after_prompt = f', "temperature": 0, "max_tokens": 1, {_WANTED.get(source, "").format(seed=model.seed)}}}'

    def of(self, instance: Any) -> Iterator[tuple[bytes, Scored]]:
        """The bodies that `instance` takes, each with the part of its prompt that is scored; none for an empty text."""
        if instance.request_type == "loglikelihood":
            context, continuation = instance.args
            if self._encoder is None:
                blanks = context[len(context.rstrip()) :]
                yield self._body(json.dumps(context + continuation)), TextTail(blanks + continuation)
            else:
                yield from self._of_tokens(self._encoder.pair(context, continuation))
            return
        (text,) = instance.args
        if self._encoder is None:
            raise UnsupportedTaskError(
                "scores texts in windows that are counted in tokens; name the tokenizer (--tokenizer)"
            )
        for window in self._encoder.windows(text):
            yield from self._of_tokens(window)

    def trial(self) -> EchoTrial | None:
        """Requests that show whether the server returns a prompt's log-probabilities, and returns them right.

        None if the source needs token ids, and there is no tokenizer.
        """
        text = _TRIAL_CONTEXT + _TRIAL_CONTINUATION
        if self._tokenizer is None:
            if self._source is LogprobSource.LLAMA_CPP:
                return None
            whole, beginning = (self._body(json.dumps(prompt)) for prompt in (text, _TRIAL_CONTEXT))
            return EchoTrial(text, whole, TextTail(_TRIAL_CONTINUATION), beginning)
        # Never cut, however short the context that the user allows.
        encoder = PromptEncoder(self._tokenizer, max_length=None)
        if self._source is LogprobSource.LLAMA_CPP:
            prompt = encoder.pair(_TRIAL_CONTEXT, _UNLIKELY_CONTINUATION)
            prompt = prompt._replace(continuation=prompt.continuation[:1])
            (whole, scored), *_ = self._of_tokens(prompt)
            return EchoTrial(
                self._tokenizer.decode(prompt.continuation), whole, scored, llama_cpp_body(prompt.context, None)
            )
        prompt = encoder.pair(_TRIAL_CONTEXT, _TRIAL_CONTINUATION)
        beginning = self._of_ids(prompt._replace(continuation=[]))
        return EchoTrial(text, self._of_ids(prompt), prompt.span, beginning)

    def _of_tokens(self, prompt: ScoredTokens) -> Iterator[tuple[bytes, Scored]]:
        if self._source is not LogprobSource.LLAMA_CPP or prompt.span.start < 1:
            yield self._of_ids(prompt), prompt.span
            return
        ids = prompt.ids
        for place in range(prompt.span.start, len(ids)):
            yield llama_cpp_body(ids[:place], ids[place]), TokenSpan(place, place + 1)

    def _of_ids(self, prompt: ScoredTokens) -> bytes:
        if self._decode is not None:
            return self._body(json.dumps(self._decode(prompt.ids)))
        parts = _listed_context(prompt.context), _listed(prompt.continuation)
        ids = ", ".join(filter(None, parts))
        return self._body(f"[{ids}]" if self._source is LogprobSource.SGLANG else f"[[{ids}]]")

    def _body(self, prompt: str) -> bytes:
        """The body with `prompt`, which is JSON."""
        if self._source is LogprobSource.SGLANG:
            return sglang_body(prompt)
        return f"{self._before_prompt}{prompt}{self._after_prompt}".encode("ascii")


_WANTED = {
    LogprobSource.ECHO: '"logprobs": 1, "seed": {seed}, "echo": true',
    LogprobSource.PROMPT_LOGPROBS: '"prompt_logprobs": 1, "seed": {seed}',
}


def _listed(ids: Sequence[int]) -> str:
    """The inside of a list in JSON."""
    return str(list(ids))[1:-1]


_listed_context = functools.lru_cache(maxsize=8)(_listed)
"""The same for contexts, which a document's choices share."""


_WEEK = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"
# Any trained model repeats what it has read, and no day follows itself.
_TRIAL_CONTEXT = f"The days of the week are {_WEEK}. The days of the week are {_WEEK.partition(', Wednesday')[0]},"
_TRIAL_CONTINUATION = " Wednesday"
_UNLIKELY_CONTINUATION = " Sunday"
"""Tells a token that is forced from the one that is likeliest."""


def lm_eval_response(kind: str, answers: Sequence[Answer]) -> Any:
    """What lm-eval's client would have returned for one instance.

    Args:
        kind: the instance's request type: ``loglikelihood`` or ``loglikelihood_rolling``.
        answers: one for each body, in order.
    """
    if kind == "loglikelihood_rolling":
        return sum(answer.logprob for answer in answers if answer.logprob is not None)
    if len(answers) == 1:
        return answers[0].logprob, answers[0].is_greedy
    total = sum(answer.logprob for answer in answers if answer.logprob is not None)
    return total, all(answer.is_greedy for answer in answers)
