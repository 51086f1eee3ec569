"""Asks a server under self-check: prompts that it has never seen, alone or many at once, whole or streamed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import NothingMeasuredError
from assay.identity.prompts import PROMPTS
from assay.identity.selfcheck.answers import StatedAnswer, answer_body, read_stated_answer
from assay.identity.token_ids import ids_of_prompt
from assay.types import Answer, Failure, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.openai import OpenAIModel
    from assay.identity.token_ids import Prompt
    from assay.types import ModelSpec

_PLAIN = tuple(prompt for prompt in PROMPTS if prompt.isascii())
_MOST_FAILURES = 20
CacheSwitch = Literal["cache_prompt", "cache_salt"]
"""llama.cpp's, and vLLM's (where a salt of its own makes a prompt new)."""
_NONCES = 10**9


class Asker:
    """Asks one server; a request that fails after all attempts is left out.

    Args:
        model: the client.
        streaming: the same server's client for streamed answers.
        seed: of the order of prompts, and of what makes them new.
    """

    def __init__(self, model: OpenAIModel, streaming: OpenAIModel, seed: int) -> None:
        self.spec: ModelSpec = model.spec
        self.gives_logprobs = True
        self.cache_switch: CacheSwitch | None = None
        """What keeps the server from using its cache, if it has such a switch."""
        self.requests = self.tokens = 0
        self._model, self._streaming = model, streaming
        self._draw = random.Random(seed)
        self._failures: list[Failure] = []

    def new_prompt(self) -> str:
        """A prompt that no cache can hold: it begins with a number of its own."""
        return f"({self._draw.randrange(_NONCES)}) {self._draw.choice(_PLAIN)}"

    def new_prompts(self, count: int) -> list[str]:
        """Several of them."""
        return [self.new_prompt() for _ in range(count)]

    async def ask(self, prompt: str, **fields: Any) -> StatedAnswer | None:
        """The answer, greedy and without the cache (where there is a switch) unless `fields` say otherwise.

        Returns:
            None if it failed.

        Raises:
            NothingMeasuredError: too many have failed.
        """
        reply = await self.try_asking(prompt, **fields)
        if isinstance(reply, Failure):
            self._failures.append(reply)
            if len(self._failures) > _MOST_FAILURES:
                raise NothingMeasuredError(f"{len(self._failures)} of {self.requests} requests failed: {reply.message}")
            return None
        return reply

    async def try_asking(
        self, prompt: str, *, from_cache: bool = False, with_logprobs: bool = True, **fields: Any
    ) -> StatedAnswer | Failure:
        """As :meth:`ask`, for what the server may refuse."""
        self.requests += 1
        body = self._body(prompt, from_cache=from_cache, with_logprobs=with_logprobs, **fields)
        reply = await self._model.exchange(body, read_stated_answer)
        if not isinstance(reply, Failure):
            self.tokens += reply.completion_tokens or len(reply.steps)
        return reply

    async def ask_together(self, prompts: Sequence[str], at_once: int, **fields: Any) -> list[StatedAnswer | None]:
        """The answers to all prompts, so many at once, the last part filled up with other prompts."""
        answers: list[StatedAnswer | None] = []
        for start in range(0, len(prompts), at_once):
            part = prompts[start : start + at_once]
            company = self.new_prompts(at_once - len(part))
            replies = await asyncio.gather(*(self.ask(prompt, **fields) for prompt in (*part, *company)))
            answers += replies[: len(part)]
        return answers

    async def ask_streamed(self, prompt: str, **fields: Any) -> Answer | None:
        """The answer, streamed."""
        self.requests += 1
        body = self._body(prompt, with_logprobs=False, **fields)
        request = Request("selfcheck", 0, 0, 0, "generate_until", body, "")
        reply = await self._streaming.ask(request)
        if isinstance(reply, Failure):
            self._failures.append(reply)
            return None
        self.tokens += reply.completion_tokens or 0
        return reply

    def put(self, text: str) -> Prompt:
        """The text as a prompt for the endpoint that is checked."""
        return ({"role": "user", "content": text},) if self.spec.endpoint == "chat" else text

    async def ids_of(self, text: str) -> tuple[int, ...] | None:
        """The ids of a prompt's tokens by the server's own ``/tokenize``; None if it has none."""
        return await ids_of_prompt(self._model, self.put(text))

    def _body(self, prompt: str, *, from_cache: bool = False, with_logprobs: bool = True, **fields: Any) -> bytes:
        switch: dict[str, Any] = {}
        if self.cache_switch is not None and not from_cache:
            off = False if self.cache_switch == "cache_prompt" else f"assay-{self._draw.randrange(_NONCES)}"
            switch = {self.cache_switch: off}
        return answer_body(
            self.spec.endpoint,
            self.spec.model,
            prompt,
            with_logprobs=with_logprobs and self.gives_logprobs,
            **{"seed": self.spec.seed, **switch, **fields},
        )

    @property
    def last_failure(self) -> str:
        """What the last failed request ended with."""
        return self._failures[-1].message if self._failures else "no request failed"


async def find_cache_switch(asker: Asker) -> None:
    """Find out what keeps the server from using its cache; a switch counts only if the server's own counts show it."""
    prompt = " ".join(asker.new_prompts(3))
    await asker.ask(prompt, max_tokens=1)
    again = await asker.ask(prompt, max_tokens=1)
    if again is None or not again.cached_tokens:
        return
    switches: dict[CacheSwitch, Any] = {"cache_prompt": False, "cache_salt": asker.new_prompt()}
    for switch, off in switches.items():
        reply = await asker.try_asking(prompt, max_tokens=1, **{switch: off})
        if isinstance(reply, StatedAnswer) and reply.cached_tokens == 0:
            asker.cache_switch = switch
            return
