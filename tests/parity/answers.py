"""What the server says: a function of the request's body alone, so that both engines hear the same.

Generated answers are right, wrong, empty or odd, as a hash of the prompt has it; right ones in several of the forms
that filters look for. Log-probabilities come from a model that knows one token of context.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
    from assay.types import Sample

Body = dict[str, Any]

_FORMS: tuple[Callable[[str, int], str], ...] = (
    lambda target, number: target,
    lambda target, number: f"Let us think step by step. So the answer is {target}.",
    lambda target, number: f"It is plain to see.\n#### {target}",
    lambda target, number: f"After some thought: The best answer is {target}. The final answer is {target}",
    lambda target, number: f" {target}\n\nQ: and what comes then?",
    lambda target, number: f"{number} + 1 = {number + 1}. The answer is ${number + 1:,}.00",
    lambda target, number: f"The answer is ({'ABCDEFGHIJ'[number % 10]}).",
    lambda target, number: "Yes" if number % 2 else "So the answer is False.",
    lambda target, number: "",
    lambda target, number: f"Weiß nicht … 答案是 {number}\u2028\t☃ <think>hm</think>",
)


class AnswerBook:
    """Answers the requests of known samples; knows each one's task and what would be right."""

    def __init__(self, samples: Iterable[tuple[Sample, Any]], tokenizer: HuggingFaceTokenizer | None = None) -> None:
        """Take samples, each with lm-eval's task that it is of, and the tokenizer of prompts sent as ids."""
        self.task_of: dict[str, str] = {}
        """By body (see :func:`text_of`), the task that asks it."""
        self._targets: dict[str, str] = {}
        self._model = None if tokenizer is None else OneTokenModel(tokenizer)
        for sample, task in samples:
            target = _target(task, sample.doc)
            for request in sample.requests:
                body = json.loads(request.payload)
                self.task_of[text_of(body)] = sample.task
                self._targets[_prompt(body)] = target

    def answer(self, body: Body) -> str | Body:
        """The text, or the whole reply where log-probabilities are asked for."""
        if self._model is not None and "logprobs" in body:
            return self._model.reply(body["prompt"][0])
        prompt = _prompt(body)
        digest = hashlib.sha256(prompt.encode()).digest()
        form = _FORMS[digest[0] % len(_FORMS)]
        return form(self._targets.get(prompt, "unknown"), int.from_bytes(digest[1:3], "big"))


class OneTokenModel:
    """Predicts each token from the one before it and its place.

    Half of the tokens that a prompt has are as likely as the likeliest, so that some continuations are greedy.
    """

    def __init__(self, tokenizer: HuggingFaceTokenizer) -> None:
        self._tokenizer = tokenizer
        self._texts: dict[int, str] = {}
        self._letters = [tokenizer.encode(letter)[0] for letter in "abcdefghijklmnopqrstuvwxyz"]

    def reply(self, ids: list[int]) -> Body:
        """The prompt's tokens and one more, with their log-probabilities, as vLLM gives them."""
        whole = [*ids, self._likeliest(ids[-1], len(ids))]
        texts = [self._text(token) for token in whole]
        values: list[float | None] = [None]
        tops: list[dict[str, float] | None] = [None]
        for place in range(1, len(whole)):
            best = self._likeliest(whole[place - 1], place)
            top = -0.1 - _fraction(whole[place - 1], place)
            is_greedy = best == whole[place] or _fraction(whole[place - 1], whole[place], place) < 0.5
            value = top if is_greedy else top - 0.1 - 9 * _fraction(whole[place], whole[place - 1], place)
            values.append(value)
            tops.append({self._text(best): top, texts[place]: value})
        logprobs = {"tokens": texts, "token_logprobs": values, "top_logprobs": tops}
        choice = {"index": 0, "finish_reason": "length", "text": "".join(texts), "logprobs": logprobs}
        usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(whole)}
        return {"object": "text_completion", "model": "scripted", "usage": usage, "choices": [choice]}

    def _likeliest(self, before: int, place: int) -> int:
        return self._letters[int(len(self._letters) * _fraction(before, place))]

    def _text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = self._tokenizer.decode([token])
        return self._texts[token]


def text_of(body: Body) -> str:
    """A body in comparable form; the order of its keys counts."""
    return json.dumps(body)


def _prompt(body: Body) -> str:
    return json.dumps(body.get("messages", body.get("prompt")))


def _target(task: Any, doc: Any) -> str:
    for program in ("canonical_solution", "code"):
        if program in doc:
            return str(doc[program])
    try:
        target = task.doc_to_target(doc)
        choices = task.doc_to_choice(doc) if task.get_config("doc_to_choice") else ()
    except Exception:  # a task may have no single right answer
        return "unknown"
    if isinstance(target, list) and target:
        target = target[0]
    return str(choices[target] if choices and isinstance(target, int) else target)


def _fraction(*numbers: int) -> float:
    """A number in [0, 1) made of these, spread evenly enough."""
    mixed = 0x9E3779B9
    for number in numbers:
        mixed = (mixed ^ (number + 0x7F4A7C15)) * 0x2545F4914F6CDD1D & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 29
    return (mixed >> 11) / 2**53
