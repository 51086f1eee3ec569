"""Teacher-forced reading: what a server says of each token of a given text, in its place.

What servers offer, best first (:class:`Way`): a prompt's own log-probabilities in one request, by ``prompt_logprobs``
(vLLM), SGLang's ``/generate`` or ``echo``; one request a token, whose prompt is what stands before it; on chat alone,
the server's own greedy answer, which says something of the text as far as the two agree.

:func:`open_reader` finds out which of them a server offers, before any work; every reading names it.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import msgspec

from assay.client.api_key import read_api_key
from assay.client.native_endpoints import llama_cpp_body
from assay.client.openai import OpenAIModel
from assay.errors import ServerRefusedError, UnsupportedTaskError
from assay.identity.forced_replies import logprob_among, read_at_token, read_native_token, read_whole, whole_body
from assay.identity.generating import Generation, generate_body, read_generation
from assay.identity.positions import Position
from assay.identity.token_ids import Messages, Prompt, ids_of_prompt, ids_of_text
from assay.identity.top_logprobs import TOP
from assay.types import Failure, FailureCause, LogprobSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from typing import TypeVar

    from assay.types import ModelSpec

    T = TypeVar("T")

__all__ = ["Generation", "Messages", "Position", "Prompt", "Reader", "Reading", "ServerReader", "Way", "open_reader"]

USUAL_TOKENS = 24
"""Of a generated answer."""


class Way(StrEnum):
    """How a server tells its model's log-probabilities of a given text; best first."""

    PROMPT_LOGPROBS = "prompt_logprobs"
    ECHO = "echo"
    SGLANG = "SGLang's /generate"
    LLAMA_CPP = "one request a token, to llama.cpp's /completion"
    """Any token's log-probability, by a bias that makes the server generate it."""
    ONE_BY_ONE = "one request a token"
    """A token's log-probability where it is among the likeliest."""
    GREEDY_CHAT = "its own greedy answer, up to the first token that differs"


class Reading(msgspec.Struct, frozen=True):
    """A given text as a model sees it."""

    positions: tuple[Position, ...]
    """One for each given token; by :attr:`Way.GREEDY_CHAT` up to and with the first that the model would not choose."""
    way: Way
    prompt_tokens: int | None = None
    """How many tokens stand before the first, if known."""
    prompt_ids: tuple[int, ...] | None = None
    """Their ids, if known."""


class Reader(Protocol):
    """A model that reads given tokens, and generates: behind a server or in this process."""

    @property
    def name(self) -> str:
        """The model and where it is, for messages."""

    @property
    def software(self) -> str | None:
        """What serves it, as far as it says."""

    @property
    def way(self) -> Way:
        """How it tells log-probabilities."""

    async def read(self, prompt: Prompt, continuation: Sequence[Position]) -> Reading | Failure:
        """What the model says of each token of `continuation` after `prompt`."""

    async def generate(self, prompt: Prompt, max_tokens: int = USUAL_TOKENS) -> Generation | Failure:
        """The model's own greedy answer to `prompt`."""


@asynccontextmanager
async def open_reader(spec: ModelSpec) -> AsyncIterator[ServerReader]:
    """Connect to a server, and find out by trying how it tells log-probabilities of a given text.

    Args:
        spec: the server and model; its endpoint says how prompts that are texts are put to the model.

    Raises:
        UnsupportedTaskError: it tells none; the message says what was tried and what to use instead.
        UnjudgeableError: it does not answer.
    """
    plain = msgspec.structs.replace(spec, endpoint="completions")
    key = read_api_key(spec)
    async with OpenAIModel(spec, api_key=key) as model, OpenAIModel(plain, api_key=key) as completions:
        served = (await model.run_preflight()).first.models
        reader = await _find_reader(model, completions)
        reader.software = served[0].owned_by if served else None
        yield reader


async def _find_reader(model: OpenAIModel, completions: OpenAIModel) -> ServerReader:
    faults: dict[str, str] = {}
    for way in _OVER_COMPLETIONS:
        reader = ServerReader(model, completions, way)
        fault = await _fault(reader)
        if fault is None:
            return reader
        faults[way] = fault
    if model.spec.endpoint == "chat":
        reader = ServerReader(model, completions, Way.GREEDY_CHAT)
        found = await reader.generate(_TRIAL_CHAT, 1)
        if isinstance(found, Generation):
            return reader
        faults[Way.GREEDY_CHAT] = found.message
    tried = "; ".join(f"by {way}: {fault}" for way, fault in faults.items())
    raise UnsupportedTaskError(
        f"the server at {model.address} cannot read a given text, because it tells no log-probabilities of it "
        f"({tried}); use a server with prompt_logprobs, echo or logprobs, or compare scores (assay compare)"
    )


async def _fault(reader: ServerReader) -> str | None:
    """What keeps a server from being read in a way, as a clause; None if nothing does.

    Any model repeats what it has read, so that its own first token must be the likeliest in the reading, too.
    """
    generated = await reader.generate(_TRIAL, 2)
    if isinstance(generated, Failure):
        return generated.message
    if reader.judges_chats and await reader.ids_of(_TRIAL_CHAT) is None:
        return "the server does not tell into what tokens its chat template puts a prompt"
    found = await reader.read(_TRIAL, generated.positions)
    if isinstance(found, Failure):
        return found.message
    likeliest = found.positions[0].top[0].token if found.positions[0].top else None
    if likeliest is None or likeliest.strip() != generated.positions[0].token.strip():
        return f"where the model generates {generated.positions[0].token!r}, the reply calls {likeliest!r} likeliest"
    return None


_WEEK = "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday"
_TRIAL = f"The days of the week are {_WEEK}. The days of the week are Monday, Tuesday,"
_TRIAL_CHAT: Messages = ({"role": "user", "content": "Name the days of the week."},)
_SOURCES = {
    Way.PROMPT_LOGPROBS: LogprobSource.PROMPT_LOGPROBS,
    Way.ECHO: LogprobSource.ECHO,
    Way.SGLANG: LogprobSource.SGLANG,
}
_OVER_COMPLETIONS = (*_SOURCES, Way.LLAMA_CPP, Way.ONE_BY_ONE)


class ServerReader:
    """Reads given tokens at a server.

    Args:
        model: the server's client, for the endpoint that is judged.
        completions: the same server's client for the completions endpoint.
        way: how the server tells log-probabilities.
    """

    def __init__(self, model: OpenAIModel, completions: OpenAIModel, way: Way) -> None:
        self.way = way
        self.name = f"{model.spec.model} at {model.address}"
        self.software: str | None = None
        """What the server names as the model's owner, which most servers' software puts its own name into."""
        self.judges_chats = model.spec.endpoint == "chat"
        self._model, self._completions = model, completions

    async def generate(self, prompt: Prompt, max_tokens: int = USUAL_TOKENS) -> Generation | Failure:
        """The server's greedy answer, each token with the likeliest in its place.

        Args:
            prompt: a chat, for chat completions; else a text or token ids, for completions.
            max_tokens: the most tokens.
        """
        model = self._completions if isinstance(prompt, str) or _is_ids(prompt) else self._model
        body = generate_body(model.spec, prompt, max_tokens, wants_ids=self.way is Way.PROMPT_LOGPROBS)
        generated = await _exchange(model, body, read_generation)
        if self.way is Way.LLAMA_CPP and isinstance(generated, Generation):
            parts = [await self._parts_of(each) for each in generated.positions]
            return msgspec.structs.replace(generated, positions=tuple(chain.from_iterable(parts)))
        return generated

    async def _parts_of(self, position: Position) -> tuple[Position, ...]:
        """A position and, before it, those that llama.cpp left out.

        It lists a character that the model wrote in several tokens under the last of them.
        """
        if position.token.isascii():
            return (position,)
        ids = await ids_of_text(self._completions, position.token, is_start=False) or ()
        if not ids or ids[-1] != position.id:
            return (position,)
        return (*(Position(f"#{each}", id=each, is_text=False) for each in ids[:-1]), position)

    async def read(self, prompt: Prompt, continuation: Sequence[Position]) -> Reading | Failure:
        """What the server says of each token of `continuation` after `prompt`.

        Args:
            prompt: a chat, put to the model by the server's own template; a text; or token ids.
            continuation: tokens, such as this or another server generated. Their ids are used where they are known.

        Returns:
            A failure if the server splits the text into other tokens, or cannot be asked about it.
        """
        if self.way is Way.GREEDY_CHAT:
            return await self._read_greedy(prompt, continuation)
        before = await self.ids_of(prompt)
        after = None if before is None else await self._ids_after(continuation)
        whole: str | list[int]
        if before is not None and after is not None:
            whole = [*before, *after]
            continuation = [
                msgspec.structs.replace(each, id=id_) for each, id_ in zip(continuation, after, strict=True)
            ]
        elif isinstance(prompt, str) and all(each.is_text for each in continuation):
            whole = prompt + _text(continuation)
        else:
            return _unreadable("the server does not tell the tokens' ids, and a chat or part of a character needs them")
        if self.way in _SOURCES:
            found = await self._read_whole(whole, continuation)
        else:
            found = await self._read_each(whole, continuation)
        return (
            found
            if isinstance(found, Failure)
            else Reading(found, self.way, None if before is None else len(before), before)
        )

    async def ids_of(self, prompt: Prompt) -> tuple[int, ...] | None:
        """The ids of a prompt's tokens, as the server puts it to its model; None if the server does not tell."""
        return await ids_of_prompt(self._completions, prompt)

    async def _ids_after(self, continuation: Sequence[Position]) -> tuple[int, ...] | None:
        ids = tuple(each.id for each in continuation if each.id is not None)
        if len(ids) < len(continuation) and all(each.is_text for each in continuation):
            split = await ids_of_text(self._completions, _text(continuation), is_start=False)
            ids = split or ()
        return ids if len(ids) == len(continuation) else None

    async def _read_whole(self, whole: str | list[int], given: Sequence[Position]) -> tuple[Position, ...] | Failure:
        body = whole_body(_SOURCES[self.way], self._completions.spec, whole)
        count = None if isinstance(whole, str) else len(whole)
        return await _exchange(self._completions, body, lambda reply: read_whole(reply, given, count))

    async def _read_each(self, whole: str | list[int], given: Sequence[Position]) -> tuple[Position, ...] | Failure:
        found = []
        for place, token in enumerate(given):
            left = len(_text(given[place:])) if isinstance(whole, str) else len(given) - place
            before = whole[: len(whole) - left]
            reply = await self._read_one(before, whole[len(before)], token)
            if isinstance(reply, Failure):
                return reply
            found.append(reply)
        return tuple(found)

    async def _read_one(self, before: str | list[int], token: str | int, given: Position) -> Position | Failure:
        if self.way is Way.ONE_BY_ONE:
            body = generate_body(self._completions.spec, before if isinstance(before, str) else tuple(before), 1)
            return await _exchange(self._completions, body, lambda reply: read_at_token(reply, given))
        if isinstance(before, str) or isinstance(token, str):
            return _unreadable("the server does not tell the tokens' ids")
        body = llama_cpp_body(before, token, top=TOP, uses_cache=False)
        return await _exchange(self._completions, body, lambda reply: read_native_token(reply, given))

    async def _read_greedy(self, prompt: Prompt, given: Sequence[Position]) -> Reading | Failure:
        chat = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
        generated = await self.generate(chat, len(given))
        if isinstance(generated, Failure):
            return generated
        found = []
        for token, own in zip(given, generated.positions, strict=False):
            logprob = logprob_among(own, token)
            found.append(msgspec.structs.replace(own, token=token.token, id=token.id, logprob=logprob))
            if own.token != token.token:
                break
        return Reading(tuple(found), self.way, generated.prompt_tokens)


async def _exchange(model: OpenAIModel, body: bytes, read: Callable[[bytes], T]) -> T | Failure:
    try:
        return await model.exchange(body, read)
    except ServerRefusedError as error:  # an endpoint that it does not have
        return Failure(cause=FailureCause.NOT_FOUND, message=str(error))


def _text(positions: Sequence[Position]) -> str:
    return "".join(each.token for each in positions)


def _is_ids(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and (not prompt or isinstance(prompt[0], int))


def _unreadable(message: str) -> Failure:
    return Failure(cause=FailureCause.UNREADABLE_REPLY, message=message, attempts=0)
