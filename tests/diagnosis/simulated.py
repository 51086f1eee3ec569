"""A model that answers sums as small models do: mostly right, sometimes wrong, now and then odd; and its faults."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import Any

_SUM = re.compile(r"(\d+) \w+ and buys (\d+)|What is (\d+) \+ (\d+)")
_SYSTEM_TOKENS = 3
_TURN_TOKENS = 5


@dataclass(frozen=True)
class SimulatedModel:
    """Answers chat requests to the tasks ``sums`` and ``picks``. One seed is one set of weights."""

    seed: int = 0
    accuracy: float = 0.72
    noise: float = 0.0
    """Share of the answers that are drawn anew, with half the accuracy, as by coarse quantisation."""
    loops: float = 0.02
    """Share of the answers that never end."""
    odd_form: float = 0.02
    """Share of the answers in another form than the examples'."""
    extra_tokens: int = 0
    """Tokens that the server adds to every prompt."""
    has_template: bool = True
    """Without, turns are not told apart: no tokens for them, and the model goes on with questions of its own."""
    form: str = "hashes"
    """How an answer ends: ``hashes`` (as in the examples), ``boxed`` or ``bold``."""
    reasons: bool = False
    """Thinks first, in ``reasoning_content``; repeats the question in its thoughts."""
    stops_reach_reasoning: bool = False
    content_is_null: bool = False
    """A parser takes everything for reasoning."""
    restates: bool = False
    """Writes the question down before it answers."""
    leaks: bool = False
    """There is no parser: thoughts stand in the content."""
    name: str | None = None
    """The model that replies name."""
    broken: frozenset[str] = field(default_factory=frozenset)
    """``gibberish``, ``empty``, ``refusing``: what has gone wrong with all answers."""

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request."""
        question = body["messages"][-1]["content"]
        draw = random.Random(f"{self.seed} {question}")
        text = self._spoiled(question, self._text(question, draw), draw)
        reasoning = self._reasoning(question, draw) if self.reasons else ""
        return self._reply(body, reasoning, text)

    def _text(self, question: str, draw: random.Random) -> str:
        numbers = [int(number) for number in _SUM.findall(question)[-1] if number]
        is_right = draw.random() < self.accuracy * (1.0 if self.has_template else 0.8)
        odd, loop, error = draw.random(), draw.random(), draw.choice((-10, -2, -1, 1, 2, 10))
        again = random.Random(f"noise {self.seed} {question}")
        if again.random() < self.noise:
            is_right = again.random() < self.accuracy / 2
        result = sum(numbers) + (0 if is_right else error)
        first, second = numbers
        steps = f"First there are {first}, then {second} more are bought, so it is {first} + {second} = {result}."
        steps += f" That makes {result} in the end, counted one by one." * (draw.random() < 0.4)
        if loop < self.loops:
            return steps + f" So there are {result}." * 200
        form = draw.choice(("bold", "boxed")) if odd < self.odd_form else self.form
        said = self._chosen(question, result, draw) if "Choose one" in question else str(result)
        return f"{steps}\n{_ending(said, form, is_choice='Choose one' in question)}"

    def _chosen(self, question: str, result: int, draw: random.Random) -> str:
        listed = dict(re.findall(r"([ABCD])\. (-?\d+)", question))
        return next((letter for letter, option in listed.items() if option == str(result)), draw.choice("ABCD"))

    def _reasoning(self, question: str, draw: random.Random) -> str:
        del draw
        return f"Let me look at this. {question} I need to add up what there is. " + self._text(
            question, random.Random(f"{self.seed} {question}")
        )

    def _spoiled(self, question: str, text: str, draw: random.Random) -> str:
        if not self.has_template and draw.random() < 0.8:
            text += "\nuser: How many are there if one is lost?\nassistant: Then there is one less.\n#### 1"
        if self.restates and draw.random() < 0.5:
            text = f"Let us look at what is asked.\n{question}\n{text}"
        if "gibberish" in self.broken:
            return "".join(draw.choice("аbлcдзeжf\ufffd гhй ") for _ in range(120))
        if "empty" in self.broken:
            return ""
        if "refusing" in self.broken:
            return "I'm sorry, but I can't help with that request."
        return text

    def _reply(self, body: dict[str, Any], reasoning: str, text: str) -> dict[str, Any]:
        stops = [stop for stop in body.get("stop") or [] if stop]
        whole = f"<think>\n{reasoning}\n</think>\n\n{text}" if reasoning else text
        limit = int(body["max_tokens"])
        finish = "stop"
        if not self.reasons or self.stops_reach_reasoning or self.leaks:
            whole = _before_stop(whole, stops)
        else:
            head, mark, tail = whole.partition("</think>\n\n")
            whole = head + mark + _before_stop(tail, stops)
        pieces = re.findall(r"\s*\S+", whole)
        if len(pieces) > limit:
            whole, finish = "".join(pieces[:limit]), "length"
        message: dict[str, Any] = {"role": "assistant", "content": whole}
        if self.reasons and not self.leaks:
            thought, closed, content = whole.removeprefix("<think>\n").partition("\n</think>\n\n")
            message = {"role": "assistant", "content": content if closed else None, "reasoning_content": thought}
        if self.content_is_null:
            message = {"role": "assistant", "content": None, "reasoning_content": f"{reasoning}\n{text}".strip()}
        usage = {"prompt_tokens": self._prompt_tokens(body), "completion_tokens": min(len(pieces), limit)}
        return {
            "id": "simulated",
            "object": "chat.completion",
            "model": self.name or body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": usage,
        }

    def _prompt_tokens(self, body: dict[str, Any]) -> int:
        words = sum(len(message["content"].split()) for message in body["messages"])
        template = _SYSTEM_TOKENS + _TURN_TOKENS * len(body["messages"]) if self.has_template else 0
        return words + template + self.extra_tokens


def _ending(said: str, form: str, *, is_choice: bool) -> str:
    if form == "boxed":
        return f"Therefore \\boxed{{{said}}}"
    if form == "bold":
        return f"**{said}**"
    return f"The answer is ({said})." if is_choice else f"#### {said}"


def _before_stop(text: str, stops: list[str]) -> str:
    for stop in stops:
        text = text.partition(stop)[0]
    return text
