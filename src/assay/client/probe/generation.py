"""Probes of generation: the endpoints, and the parameters that benchmarks send."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay.client.probe.report import Capability, Observation, Observations, no, unknown, yes
from assay.client.probe.server import PROMPT, TOKENS, ProbeReply, at, refused, text_of
from assay.types import FailureCause

if TYPE_CHECKING:
    from assay.client.probe.server import ServerUnderProbe
    from assay.client.replies import ParsedReply
    from assay.types import EndpointKind

_ENDPOINTS: dict[EndpointKind, Capability] = {"chat": Capability.CHAT, "completions": Capability.COMPLETIONS}
_ABSENT_STOPS = ["@@1", "@@2", "@@3", "@@4"]
_LONGEST_OVERFLOW = 32768
"""Tokens; a longer prompt would burden the server."""


async def ask_endpoint(server: ServerUnderProbe, kind: EndpointKind) -> Observations:
    """Whether an endpoint answers; its answer is the reference for later comparisons."""
    reply = await server.ask(kind)
    if reply.parsed is None:
        return {_ENDPOINTS[kind]: refused(reply)}
    server.reference[kind] = reply.parsed
    text = text_of(reply.parsed)
    return {_ENDPOINTS[kind]: yes(server.clean(f"said {text!r}") if text else "answered with empty content")}


def judge_references(server: ServerUnderProbe) -> Observations:
    """Observations on the endpoints' first answers, apart from their text."""
    if not server.reference:
        return {}
    parsed = server.reference
    return {
        Capability.USAGE: _usage(list(parsed.values())),
        Capability.MAX_TOKENS: _max_tokens(list(parsed.values())),
        Capability.REASONING: _reasoning(parsed.get("chat")),
    }


def _usage(answers: list[ParsedReply]) -> Observation:
    counts = [(parsed.prompt_tokens, parsed.completion_tokens) for parsed in answers]
    if any(None in pair for pair in counts):
        return no("no token counts in the reply")
    return yes("; ".join(f"{prompt} prompt and {completion} completion tokens" for prompt, completion in counts))


def _max_tokens(answers: list[ParsedReply]) -> Observation:
    full = [
        parsed for parsed in answers if (parsed.completion_tokens or 0) >= TOKENS or parsed.finish_reason == "length"
    ]
    if not full:
        return unknown("the answer ended before, or its tokens are not counted")
    parsed = max(full, key=lambda parsed: (parsed.completion_tokens or 0, parsed.finish_reason != "length"))
    if (parsed.completion_tokens or 0) > TOKENS:
        return no(f"{parsed.completion_tokens} tokens where {TOKENS} were allowed")
    if parsed.finish_reason != "length":
        return no(f"finish_reason {parsed.finish_reason!r} where the limit ended the answer"[:160])
    return yes(f"finish_reason 'length' after {TOKENS} tokens")


def _reasoning(parsed: ParsedReply | None) -> Observation:
    if parsed is None:
        return unknown("chat does not work")
    if parsed.reasoning:
        return yes(f"{len(parsed.reasoning)} characters of reasoning in a field of their own")
    if "<think>" in (parsed.text or ""):
        return no("reasoning stands in the content, after <think>")
    return no("no reasoning in the reply")


async def try_stops(server: ServerUnderProbe, kind: EndpointKind) -> Observations:
    """How stop strings are treated; the first one is a word that the answer is known to contain."""
    reference = server.reference[kind].text or ""
    later_words = re.findall(r"\w{4,}", reference)[1:]
    plain = await server.ask(kind, stop=[])
    empty = await server.ask(kind, stop="")
    found = {
        Capability.EMPTY_STOP_LIST: _judge_empty(plain, reference),
        Capability.EMPTY_STOP_STRING: _judge_empty(empty, reference),
    }
    word = next((word for word in later_words if not reference.startswith(word)), None)
    if word is None:
        return found
    one = await server.ask(kind, stop=[word])
    many = await server.ask(kind, stop=[*_ABSENT_STOPS, word])
    found[Capability.STOP] = _judge_stop(one, reference, word)
    found[Capability.MANY_STOPS] = _judge_stop(many, reference, word)
    return found


def _judge_stop(reply: ProbeReply, reference: str, word: str) -> Observation:
    if reply.parsed is None:
        return refused(reply)
    text = (reply.parsed.text or "").rstrip()
    before = reference[: reference.index(word)]
    if text == before.rstrip():
        return yes(f"cut before {word!r}")
    if text == before + word:
        return no(f"{word!r} ended the answer and stays in it")
    if text.startswith(before + word):
        return no("ignored")
    return unknown("another answer than without it")


def _judge_empty(reply: ProbeReply, reference: str) -> Observation:
    if reply.parsed is None:
        return refused(reply)
    text = reply.parsed.text or ""
    if text == reference:
        return yes("same answer as without")
    if len(text) < len(reference) / 2:
        return no(f"cut the answer to {len(text)} characters")
    return unknown("another answer than without")


async def try_odd_requests(server: ServerUnderProbe, kind: EndpointKind) -> Observations:
    """How the server treats ``n``, an unknown model and an unknown field."""
    return {
        Capability.SEVERAL_CHOICES: await _several_choices(server, kind),
        Capability.UNKNOWN_MODEL: _taken(await server.ask(kind, max_tokens=1, model="assay-no-such-model")),
        Capability.UNKNOWN_FIELD: _taken(await server.ask(kind, max_tokens=1, assay_no_such_field=1)),
    }


def _taken(reply: ProbeReply) -> Observation:
    return refused(reply) if reply.parsed is None else yes("answered")


async def _several_choices(server: ServerUnderProbe, kind: EndpointKind) -> Observation:
    reply = await server.ask(kind, n=2, temperature=0.8, max_tokens=4)
    if reply.parsed is None:
        return refused(reply)
    choices = at(reply.json, "choices")
    count = len(choices) if isinstance(choices, list) else 0
    tokens = reply.parsed.completion_tokens
    evidence = f"{count} choices for n = 2" + (f", {tokens} completion tokens counted" if tokens is not None else "")
    return yes(evidence) if count == 2 else no(evidence)


async def try_prompts(server: ServerUnderProbe) -> Observations:
    """How completions treats prompts that are not a single text."""
    if "completions" not in server.reference:
        return {}
    return {Capability.PROMPT_LIST: await _prompt_list(server), Capability.PROMPT_IDS: await _token_ids(server)}


async def _prompt_list(server: ServerUnderProbe) -> Observation:
    reply = await server.ask("completions", [PROMPT, "The capital of France is"], max_tokens=4)
    if reply.parsed is None:
        return refused(reply)
    choices = reply.at("choices")
    texts = {at(choice, "index"): at(choice, "text") for choice in choices} if isinstance(choices, list) else {}
    if len(texts) != 2:
        return no(f"{len(texts)} choices for 2 prompts")
    begins = text_of(server.reference["completions"]).startswith(str(texts.get(0)).rstrip())
    alone = server.reference["completions"].prompt_tokens
    usage = "; usage counts the first only" if alone is not None and reply.parsed.prompt_tokens == alone else ""
    return yes(f"2 choices{'' if begins else ', the first another than alone'}{usage}")


async def _token_ids(server: ServerUnderProbe) -> Observation:
    ids = server.token_ids or [10, 11, 12]
    reply = await server.ask("completions", ids)
    if reply.parsed is None:
        return refused(reply)
    if server.token_ids is None:
        return yes("answered")
    same = text_of(reply.parsed) == text_of(server.reference["completions"])
    return yes("same answer as the text" if same else "another answer than the text's")


async def try_overflow(server: ServerUnderProbe, kind: EndpointKind) -> Observations:
    """How the server treats a prompt beyond the context, and whether its message is recognised."""
    length = server.max_length
    if length is None or length > _LONGEST_OVERFLOW:
        return {Capability.OVERFLOW_REFUSED: unknown("the context is too long to try, or not known")}
    reply = await server.ask(kind, "1 " * (length + 64), max_tokens=1)
    if reply.parsed is not None:
        return {Capability.OVERFLOW_REFUSED: no(f"answered; {reply.parsed.prompt_tokens} prompt tokens counted")}
    if reply.cause is FailureCause.CONTEXT_TOO_LONG:
        return {Capability.OVERFLOW_REFUSED: yes(reply.fault)}
    if reply.status in (400, 413, 422, 500):
        return {Capability.OVERFLOW_REFUSED: no(f"not said as such: {reply.fault}")}
    return {Capability.OVERFLOW_REFUSED: unknown(reply.fault)}
