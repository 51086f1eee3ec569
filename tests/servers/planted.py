"""A small model that knows its whole distribution at every position, on a server in which faults can be planted.

In a test::

    with PlantedServer(SmallModel("decode_from_8")) as server:
        ...  # server.url; the model's name is NAME

The model predicts from hashes of what came before, so that its answers are always the same, and a context that differs
in one token gives another distribution. It answers ``/v1/completions`` (with ``echo`` and ``prompt_logprobs``),
``/v1/chat/completions``, streamed or not, and ``/tokenize``, as vLLM does unless it is told to lack something.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tests.servers.scripted import ScriptedServer
from tests.servers.wire import Body, Received, Wire

Fault = Literal[
    "decode_from_8",  # from the ninth generated token on, another distribution than a prefill's
    "decode_each_16",  # at each position of the sequence that is a multiple of 16
    "decode_in_batches",  # only while more than four requests are answered at once
    "neighbour_prefix",  # a prompt that is in the cache begins with another prompt's first 16 tokens
    "wrong_position",  # log-probabilities are those of the next position
    "unaligned_tokens",  # the tokens listed do not make the text
    "temperature_ignored",  # 1, whatever is asked for, but for 0
    "always_greedy",  # 0, whatever is asked for
    "never_greedy",  # 1, even where 0 is asked for
    "top_p_ignored",
    "seed_ignored",
    "seed_constant",
    "late_stop",  # a stop string is seen one token late, and stays in the text
    "stream_loses_end",  # the last piece of a streamed answer is missing
    "token_too_many",  # max_tokens is exceeded by one
    "usage_too_small",  # one completion token is not counted
    "prompt_count_off",  # one prompt token too many is counted
    "unnormalised",  # the log-probabilities are logits: their probabilities sum to more than 1
    "unordered",  # the likeliest tokens are not listed in order, and the least likely of them are given
]
FAULTS: tuple[Fault, ...] = get_args(Fault)
NAME = "planted"
END = 0
_SYLLABLES = tuple(f" {consonant}{vowel}" for consonant in "bcdfghjklmnprstvz" for vowel in "aeiou")
_IDS = {text: place for place, text in enumerate(_SYLLABLES, 1)}
_CHARACTERS = 1000
"""The id of a character that is in no syllable is this and its code point."""
_USER, _ASSISTANT = 900, 901
_TEXT = re.compile(f"({'|'.join(_SYLLABLES)})|(.)", re.DOTALL)
_BLOCK = 16
_BATCH = 4
_ARRIVE = 0.003
"""Seconds without another request, after which those that wait are answered."""
_LONGEST_WAIT = 0.05

Logprobs = NDArray[np.float64]


def encode(text: str) -> list[int]:
    """A text's tokens: no text has two ways to be split."""
    return [_IDS[syllable] if syllable else _CHARACTERS + ord(other) for syllable, other in _TEXT.findall(text)]


def text_of(token: int) -> str:
    """A token's text."""
    if token >= _CHARACTERS:
        return chr(token - _CHARACTERS)
    return "" if token in (END, _USER, _ASSISTANT) else _SYLLABLES[token - 1]


@lru_cache(maxsize=100_000)
def _gauss(*key: object) -> Logprobs:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).normal(size=len(_SYLLABLES) + 1)


def _uniform(*key: object) -> float:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def logprobs_after(context: Sequence[int]) -> Logprobs:
    """The model's own log-probabilities of every token after a context: what a sound server gives."""
    return _normalised(_logits(context))


def _logits(context: Sequence[int]) -> Logprobs:
    logits = 2.0 * _gauss("near", *context[-2:]) + 0.7 * _gauss("whole", *context)
    logits[END] = -3.0
    return logits


def _normalised(logits: Logprobs) -> Logprobs:
    whole: Logprobs = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    return whole


@dataclass(frozen=True)
class _Step:
    token: int
    stated: Logprobs
    """What the server says of this position."""


@dataclass
class SmallModel:
    """The model, and how it is served.

    Args:
        fault: what is wrong with the server, if anything.
        noise: standard deviation of what another batch, or decoding instead of prefill, changes in each logit.
        damage: likewise, of what a decode fault changes.
        lacks: which of ``echo``, ``prompt_logprobs``, ``cache_prompt`` (the switch), ``cached_tokens`` (in its usage),
            ``chat_logprobs``, ``tokenize``, ``seed`` it does not know. What it does not know, it ignores.
    """

    fault: Fault | None = None
    noise: float = 0.0
    damage: float = 0.5
    lacks: frozenset[str] = frozenset()
    _cached: list[tuple[int, ...]] = field(default_factory=list)
    _draws: int = 0

    def answer(self, body: Body, batch: int) -> Body:
        """The reply to a request that was answered together with ``batch - 1`` others."""
        prompt = self._prompt(body)
        context, cached = self._from_cache(prompt, body)
        steps, finish = self._generate(context, body, batch)
        text = "".join(text_of(step.token) for step in steps)
        if finish == "stop":
            text = self._cut(text, body)
        echoes = bool(body.get("echo")) and "echo" not in self.lacks
        choice: Body = {"index": 0, "finish_reason": finish}
        if "messages" in body:
            choice["message"] = {"role": "assistant", "content": text}
            if body.get("logprobs") and "chat_logprobs" not in self.lacks:
                choice["logprobs"] = self._chat_logprobs(steps, int(body.get("top_logprobs", 0)))
        else:
            shown = prompt if echoes else []
            choice["text"] = "".join(map(text_of, shown)) + text
            if (top := body.get("logprobs")) is not None:
                choice["logprobs"] = self._legacy_logprobs(shown, steps, int(top), batch)
            if body.get("prompt_logprobs") is not None and "prompt_logprobs" not in self.lacks:
                choice["prompt_logprobs"] = self._prompt_logprobs(prompt, int(body["prompt_logprobs"]), batch)
        counted = len(steps) - (self.fault == "usage_too_small")
        usage: Body = {"prompt_tokens": len(prompt) + (self.fault == "prompt_count_off"), "completion_tokens": counted}
        usage["total_tokens"] = sum(usage.values())
        if "cached_tokens" not in self.lacks:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return {"id": "planted-1", "model": NAME, "created": 0, "choices": [choice], "usage": usage}

    def tokenize(self, body: Body) -> Body:
        """vLLM's ``/tokenize``."""
        return {"tokens": self._prompt(body)}

    def _prompt(self, body: Body) -> list[int]:
        if "messages" in body:
            said = [token for each in body["messages"] for token in (_USER, *encode(each["content"]))]
            return [*said, _ASSISTANT]
        prompt = body["prompt"]
        if isinstance(prompt, str):
            return encode(prompt)
        (ids,) = prompt if isinstance(prompt[0], list) else [prompt]
        return list(ids)

    def _from_cache(self, prompt: list[int], body: Body) -> tuple[list[int], int]:
        """The prompt as the model sees it, and how many of its tokens are from the cache."""
        kept = tuple(prompt)
        others = [each for each in self._cached if each[:_BLOCK] != kept[:_BLOCK] and len(each) >= _BLOCK]
        is_hit = kept in self._cached and (body.get("cache_prompt", True) or "cache_prompt" in self.lacks)
        if kept not in self._cached:
            self._cached.append(kept)
        if not is_hit:
            return prompt, 0
        if self.fault == "neighbour_prefix" and others:
            return [*others[-1][:_BLOCK], *prompt[_BLOCK:]], len(prompt) - 1
        return prompt, len(prompt) - 1

    def _generate(self, prompt: list[int], body: Body, batch: int) -> tuple[list[_Step], str]:
        most = int(body.get("max_tokens", 16)) + (self.fault == "token_too_many")
        draw = self._draw(body)
        steps: list[_Step] = []
        context, is_late = list(prompt), False
        while len(steps) < most:
            true = self._decoded(context, len(steps), batch)
            token = self._chosen(true, body, _uniform(*draw, len(steps)))
            if token == END:
                return steps, "stop"
            context.append(token)
            steps.append(_Step(token, self._decoded(context, len(steps), batch) if self._is_shifted else true))
            text = "".join(text_of(step.token) for step in steps)
            if is_late or any(stop in text for stop in _stops(body)):
                if is_late or self.fault != "late_stop":
                    return steps, "stop"
                is_late = True
        return steps, "length"

    @property
    def _is_shifted(self) -> bool:
        return self.fault == "wrong_position"

    def _decoded(self, context: list[int], index: int, batch: int) -> Logprobs:
        logits = _logits(context) + self.noise * _gauss("decode", min(batch, 8), *context)
        is_hit = (
            (self.fault == "decode_from_8" and index >= 8)
            or (self.fault == "decode_each_16" and index > 0 and len(context) % _BLOCK == 0)
            or (self.fault == "decode_in_batches" and batch > _BATCH and index > 0)
        )
        return _normalised(logits + self.damage * _gauss("damage", *context) if is_hit else logits)

    def _draw(self, body: Body) -> tuple[object, ...]:
        self._draws += 1
        if self.fault == "seed_constant":
            return ("constant",)
        is_seeded = body.get("seed") is not None and self.fault != "seed_ignored" and "seed" not in self.lacks
        return ("seed", body["seed"]) if is_seeded else ("draw", self._draws)

    def _chosen(self, logprobs: Logprobs, body: Body, uniform: float) -> int:
        temperature = float(body.get("temperature", 1.0))
        if self.fault in ("temperature_ignored", "never_greedy") and (temperature or self.fault == "never_greedy"):
            temperature = 1.0
        if temperature == 0 or self.fault == "always_greedy":
            return int(logprobs.argmax())
        p = np.exp(_normalised(logprobs / temperature))
        order = np.argsort(-p, kind="stable")
        sums = np.cumsum(p[order])
        if self.fault != "top_p_ignored" and (top_p := float(body.get("top_p", 1.0))) < 1:
            order = order[: int(np.searchsorted(sums, top_p)) + 1]
            sums = sums[: len(order)] / sums[len(order) - 1]
        return int(order[min(int(np.searchsorted(sums, uniform)), len(order) - 1)])

    def _cut(self, text: str, body: Body) -> str:
        if self.fault == "late_stop":
            return text
        ends = [text.index(stop) for stop in _stops(body) if stop in text]
        return text[: min(ends)] if ends else text

    def _listed(self, step: _Step, top: int) -> list[tuple[int, float]]:
        """The likeliest tokens of a step, and the one that was chosen if it is not among them."""
        stated = step.stated + (1.0 if self.fault == "unnormalised" else 0.0)
        order = [int(token) for token in np.argsort(-stated, kind="stable")]
        listed = order[-top:] if self.fault == "unordered" else order[:top]
        return [(token, min(float(stated[token]), 0.0)) for token in listed]

    def _chat_logprobs(self, steps: list[_Step], top: int) -> Body:
        content = []
        for step in steps:
            own = self._entry(step.token, min(float(step.stated[step.token]), 0.0))
            content.append({**own, "top_logprobs": [self._entry(*each) for each in self._listed(step, top)]})
        return {"content": content}

    def _entry(self, token: int, logprob: float) -> Body:
        text = self._shown(token)
        return {"token": text, "logprob": logprob, "bytes": list(text.encode())}

    def _shown(self, token: int) -> str:
        return text_of(token).strip() if self.fault == "unaligned_tokens" else text_of(token)

    def _legacy_logprobs(self, echoed: list[int], steps: list[_Step], top: int, batch: int) -> Body:
        read = self._read(echoed, batch)
        tokens = [*echoed, *(step.token for step in steps)]
        stated = [*read, *steps]
        values = [None if step is None else min(float(step.stated[step.token]), 0.0) for step in stated]
        tops = [
            None
            if step is None
            else {self._shown(token): value for token, value in self._listed(step, top)}
            | {self._shown(step.token): min(float(step.stated[step.token]), 0.0)}
            for step in stated
        ]
        return {"tokens": list(map(self._shown, tokens)), "token_logprobs": values, "top_logprobs": tops}

    def _prompt_logprobs(self, prompt: list[int], top: int, batch: int) -> list[Body | None]:
        def entry(step: _Step) -> Body:
            order = [int(token) for token in np.argsort(-step.stated, kind="stable")]
            ranks = {token: rank for rank, token in enumerate(order, 1)}
            return {
                str(token): {
                    "logprob": float(step.stated[token]),
                    "rank": ranks[token],
                    "decoded_token": text_of(token),
                }
                for token in dict.fromkeys([step.token, *order[:top]])
            }

        return [None if step is None else entry(step) for step in self._read(prompt, batch)]

    def _read(self, ids: list[int], batch: int) -> list[_Step | None]:
        """A text read in one prefill, which no fault of decoding or of the cache touches."""

        def step(place: int) -> _Step:
            context = ids[:place]
            noise = self.noise * _gauss("prefill", min(batch, 8), *context)
            stated = _normalised(_logits(context) + noise)
            known = ids[place] if ids[place] < len(stated) else END
            return _Step(ids[place], stated) if known == ids[place] else _Step(ids[place], _with(stated, ids[place]))

        return [None if place == 0 else step(place) for place in range(len(ids))]


def _with(stated: Logprobs, token: int) -> Logprobs:
    """The log-probabilities with an entry for a character, which the model never generates."""
    wider = np.full(token + 1, -30.0)
    wider[: len(stated)] = stated
    return wider


def _stops(body: Body) -> list[str]:
    stop = body.get("stop") or []
    return [stop] if isinstance(stop, str) else [each for each in stop if each]


class _Batch:
    """Of a request: the most that were under way at any time while it was, itself included."""

    size = 0


class PlantedServer(ScriptedServer):
    """Serves a small model, and knows how many requests are answered together."""

    def __init__(self, model: SmallModel | None = None, **more: Any) -> None:
        self.model = model or SmallModel()
        pages = {} if "tokenize" in self.model.lacks else {"/tokenize": self.model.tokenize}
        super().__init__(models=[(NAME, 4096)], json_pages=pages, **more)
        self._live: set[_Batch] = set()
        self._arrivals = 0

    async def _reply(self, request: Received, wire: Wire) -> bool:
        batch = _Batch()
        self._live.add(batch)
        for each in self._live:
            each.size = max(each.size, len(self._live))
        try:
            await self._wait_for_company()
            reply = self.model.answer(request.body, batch.size)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            return await wire.error(400, f"no such request is served: {error!r}")
        finally:
            self._live.remove(batch)
        if request.body.get("stream"):
            return await wire.stream(self._events(reply, request.body))
        return await wire.json(reply)

    async def _wait_for_company(self) -> None:
        self._arrivals += 1
        seen, waited = 0, 0.0
        while seen != self._arrivals and waited < _LONGEST_WAIT:
            seen = self._arrivals
            await asyncio.sleep(_ARRIVE)
            waited += _ARRIVE

    def _events(self, reply: Body, body: Body) -> list[bytes]:
        """The reply, streamed a token an event."""
        choice = reply["choices"][0]
        is_chat = "messages" in body
        text = choice["message"]["content"] if is_chat else choice["text"]
        pieces = [text_of(token) for token in encode(text)]
        if self.model.fault == "stream_loses_end":
            pieces.pop()
        parts: list[Body] = [{"delta": {"content": piece}} if is_chat else {"text": piece} for piece in pieces]
        if is_chat:
            for part, entry in zip(parts, (choice.get("logprobs") or {}).get("content", ()), strict=False):
                part["logprobs"] = {"content": [entry]}
        events: list[Body] = [{"choices": [{"index": 0, "finish_reason": None, **part}]} for part in parts]
        last: Body = {"delta": {}} if is_chat else {"text": ""}
        events.append({"choices": [{"index": 0, "finish_reason": choice["finish_reason"], **last}]})
        if body.get("stream_options", {}).get("include_usage"):
            events.append({"choices": [], "usage": reply["usage"]})
        encoded = [b"data: %b\n\n" % json.dumps({"model": NAME, **event}).encode() for event in events]
        return [*encoded, b"data: [DONE]\n\n"]
