"""Probes of tokens: tokenization, the chat template, and a doubled BOS token."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from assay.client.probe.report import Capability, Observation, Observations, Seen, no, unknown, yes
from assay.client.probe.server import PROMPT, at, refused

if TYPE_CHECKING:
    from assay.client.probe.server import ServerUnderProbe

_SYSTEM = "You are a careful assistant who always answers in short and plain sentences, never in lists or tables."
_SHORT_SYSTEM = "Be brief."
_MESSAGES = [{"role": "user", "content": PROMPT}]


async def tokenize(server: ServerUnderProbe) -> Observations:
    """Whether ``/tokenize`` works; its tokens are kept for other checks."""
    # vLLM and SGLang, llama.cpp, TGI: each has another name for the text.
    finding = unknown()
    for name in ("prompt", "content", "inputs"):
        ids = await _ids(server, **{name: PROMPT}, **({"model": server.model} if name == "prompt" else {}))
        if isinstance(ids, list):
            server.token_ids = ids
            return {Capability.TOKENIZE: yes(f"{len(ids)} tokens, asked with {name!r}", name)}
        finding = ids
    return {Capability.TOKENIZE: finding}


async def _ids(server: ServerUnderProbe, **body: Any) -> list[int] | Observation:
    """Token ids from ``/tokenize``, or the observation that there are none."""
    reply = await server.post("/tokenize", **body)
    if reply.fault:
        return refused(reply)
    tokens = at(reply.json, "tokens") or reply.json
    ids = (
        [at(token, "id") if isinstance(token, dict) else token for token in tokens] if isinstance(tokens, list) else []
    )
    return ids if ids and all(type(token) is int for token in ids) else no("no token ids in the reply")


async def look_at_template(server: ServerUnderProbe) -> Observations:
    """How many tokens the chat template adds to a text, and whether completions adds a BOS to the rendered text."""
    chat, plain = server.reference.get("chat"), server.reference.get("completions")
    if chat is None or chat.prompt_tokens is None:
        return {Capability.CHAT_TEMPLATE: unknown("chat does not count its prompt's tokens")}
    bare = len(server.token_ids) if server.token_ids else plain.prompt_tokens if plain else None
    rendered, ids = await _rendered(server)
    found = {Capability.CHAT_TEMPLATE: _judge_template(chat.prompt_tokens, bare)}
    if ids[:2] and len(ids) > 1 and ids[0] == ids[1]:
        found[Capability.BOS_DOUBLED] = yes(f"chat's own prompt begins with token {ids[0]} twice")
    elif rendered is None:
        found[Capability.BOS_DOUBLED] = unknown("the server does not show what its template makes of a text")
    elif plain is None:
        found[Capability.BOS_DOUBLED] = unknown("completions does not work")
    else:
        found[Capability.BOS_DOUBLED] = await _count_again(server, rendered, chat.prompt_tokens)
    return found


def _judge_template(with_template: int, bare: int | None) -> Observation:
    if bare is None:
        return unknown(f"{with_template} prompt tokens in chat; those of the bare text are not known")
    evidence = f"{with_template} prompt tokens in chat, {bare} of the bare text"
    return yes(evidence) if with_template > bare + 1 else no(evidence)


async def _rendered(server: ServerUnderProbe) -> tuple[str | None, list[int]]:
    """The rendered prompt, as text (llama.cpp, vLLM) and as token ids (vLLM)."""
    applied = (await server.post("/apply-template", messages=_MESSAGES)).json
    if isinstance(text := at(applied, "prompt"), str):
        return text, []
    ids = await _ids(server, model=server.model, messages=_MESSAGES, add_generation_prompt=True)
    if not isinstance(ids, list):
        return None, []
    text = at((await server.post("/detokenize", model=server.model, tokens=ids)).json, "prompt")
    return (text if isinstance(text, str) else None), ids


async def _count_again(server: ServerUnderProbe, rendered: str, in_chat: int) -> Observation:
    """Whether completions counts more tokens in the rendered text than chat did."""
    reply = await server.ask("completions", rendered, max_tokens=1)
    if reply.parsed is None or reply.parsed.prompt_tokens is None:
        return unknown(reply.fault or "completions does not count its prompt's tokens")
    counted = reply.parsed.prompt_tokens
    evidence = f"{in_chat} prompt tokens in chat, {counted} when completions is sent the rendered text"
    return yes(evidence) if counted == in_chat + 1 else no(evidence) if counted == in_chat else unknown(evidence)


async def try_system_prompt(server: ServerUnderProbe) -> Observations:
    """Whether a system message reaches the model: some templates drop it, some refuse it."""
    # A long one is compared with a short one, not with none: some templates add their own if there is none.
    without, short, long = await asyncio.gather(
        server.ask("chat", max_tokens=1),
        server.ask("chat", messages=_after_system(_SHORT_SYSTEM), max_tokens=1),
        server.ask("chat", messages=_after_system(_SYSTEM), max_tokens=1),
    )
    if without.parsed is None:
        seen = refused(without)
        return {Capability.SYSTEM_PROMPT: seen} if seen.seen is Seen.UNKNOWN else {}  # Without chat, there is none.
    if short.parsed is None or long.parsed is None:
        return {Capability.SYSTEM_PROMPT: refused(short if short.parsed is None else long)}
    few, many = short.parsed.prompt_tokens, long.parsed.prompt_tokens
    if few is None or many is None:
        return {Capability.SYSTEM_PROMPT: unknown("chat does not count its prompt's tokens")}
    words, fewer_words = len(_SYSTEM.split()), len(_SHORT_SYSTEM.split())
    evidence = f"{many} prompt tokens with one of {words} words, {few} with one of {fewer_words}"
    return {Capability.SYSTEM_PROMPT: yes(evidence) if many >= few + (words - fewer_words) // 2 else no(evidence)}


def _after_system(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": text}, *_MESSAGES]
