"""What the scripted model answers to one document, and what its server makes of that."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

CHARACTERS_IN_A_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer as it leaves the server."""

    text: str | None
    reasoning: str | None = None
    finish_reason: str = "stop"
    extra_prompt_tokens: int = 0
    longest_question: int | None = None
    """Characters of the last message that the server reads; it cuts longer ones without a word."""
    reads_system: bool = True
    """Whether the template has a place for the system message."""
    turn_tokens: int = 4
    """Tokens that the chat template adds to each message."""
    model: str | None = None
    """The model that the reply names, if it is not the one asked for."""
    endpoint: str | None = None
    status: int | None = None
    """The HTTP status of an error, in place of an answer."""
    tool_calls: bool = False
    after_stops: bool = False
    """The server has changed the text after it looked for stop strings."""


def as_sent(reply: Reply, body: dict[str, Any]) -> Reply:
    """The reply after the request's own stop strings and token limit."""
    text = reply.text
    if text is None or reply.status is not None or reply.after_stops:
        return reply
    ends = [place for stop in body.get("stop") or () if (place := text.find(stop)) >= 0]
    if ends:
        reply = replace(reply, text=text[: min(ends)], finish_reason="stop")
    most = int(body.get("max_tokens") or body.get("max_completion_tokens") or 256) * CHARACTERS_IN_A_TOKEN
    if reply.text is not None and len(reply.text) > most:
        reply = replace(reply, text=reply.text[:most], finish_reason="length")
    return reply


def as_json(reply: Reply, body: dict[str, Any]) -> dict[str, Any]:
    """The body that a chat server would send."""
    turns = [each for each in body["messages"] if reply.reads_system or each["role"] != "system"]
    *before, last = [turn["content"] for turn in turns]
    read = last[: reply.longest_question]
    prompt = sum(tokens(text) + reply.turn_tokens for text in (*before, read)) + reply.extra_prompt_tokens
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        call = {"name": "answer", "arguments": json.dumps({"text": "see above"})}
        message["tool_calls"] = [{"id": "call_0", "type": "function", "function": call}]
    completion = tokens(reply.text or "") + tokens(reply.reasoning or "") + 1
    return {
        "object": "chat.completion",
        "model": reply.model or body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    }


def tokens(text: str) -> int:
    """How many tokens the scripted model's tokenizer makes of a text."""
    return math.ceil(len(text) / CHARACTERS_IN_A_TOKEN)
