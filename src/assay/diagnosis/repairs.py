"""Undoes what happened to answers after the model wrote them, so that the repaired texts can be scored.

Each repair names the cause that it undoes. They are applied one after another, what happened last first, and what one
of them regains is measured on the texts that those before it have repaired.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, NamedTuple

from assay.diagnosis.causes import Cause
from assay.diagnosis.extraction import before_next_question
from assay.diagnosis.texts import REASONING_TAG, has_marks

if TYPE_CHECKING:
    from collections.abc import Callable

_ENTITY = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|lt|gt|amp|quot|apos|nbsp);")
_TAG = re.compile(r"</?(?:p|br|div|span|b|i|em|strong|li|ul|ol|pre)\s*/?>", re.IGNORECASE)
_WIDE = re.compile("[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a]")
_NARROW = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {0x3000: 0x20}
_PIECES = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n", "ĉ": "\t"})
_FEWEST_SPACED = 8
_SPACED_SHARE = 0.95
_MARKER = re.compile(
    r"<\|(?:im_start|im_end|eot_id|eom_id|start_header_id|end_header_id|begin_of_text|end_of_text|endoftext|user"
    r"|assistant|system|end)\|>|\[/?INST\]|<(?:start|end)_of_turn>|</?s>|<(?:bos|eos)>"
)
_END_OF_TURN = re.compile(r"<\|(?:im_end|eot_id|end_of_text|endoftext|end)\|>|<end_of_turn>|</s>|<eos>")
_ROLE = re.compile(r"\s*(?:assistant|model|ai|bot)(?: ?: ?|[ ]*\n)\s*", re.IGNORECASE)
_BARE_ROLE = re.compile(r"\s*(?:assistant|model)\s*", re.IGNORECASE)
_SHORTEST_ECHO = 40


class Repair(NamedTuple):
    """How one kind of damage is undone."""

    name: str
    cause: Cause
    seen: str
    """What the answers show, after "12 of 40 answers"."""
    advice: str
    undo: Callable[[str, str], str]
    """The repaired text, from the text and the end of its prompt; the text itself if nothing is to be repaired."""


def _without_html(text: str, _: str) -> str:
    if "&" not in text and "<" not in text:
        return text
    # Tags may be escaped themselves, and escapes escaped twice.
    return _TAG.sub("", html.unescape(html.unescape(text))) if _ENTITY.search(text) or _TAG.search(text) else text


def _narrow(text: str, _: str) -> str:
    return text if text.isascii() or not _WIDE.search(text) else text.translate(_NARROW)


def _joined_pieces(text: str, _: str) -> str:
    if text.isascii():
        return text
    return text.translate(_PIECES).lstrip(" ")


def _joined_letters(text: str, _: str) -> str:
    """The text without a blank after each of its characters."""
    for first in (0, 1):
        blanks = text[1 - first :: 2]
        if len(blanks) >= _FEWEST_SPACED and blanks.count(" ") >= _SPACED_SHARE * len(blanks):
            return text[first::2]
    return text


def _without_template(text: str, _: str) -> str:
    marked = ("<" in text or "[" in text) and _MARKER.search(text) is not None
    if marked:
        text = _MARKER.sub("", _own_turn(text))
    if found := _ROLE.match(text):
        return text[found.end() :]
    return "" if _BARE_ROLE.fullmatch(text) else text


def _own_turn(text: str) -> str:
    """The text up to the first end of a turn that something precedes."""
    for end in _END_OF_TURN.finditer(text):
        if _MARKER.sub("", text[: end.start()]).strip():
            return text[: end.start()]
    return text


def _without_echo(text: str, prompt: str) -> str:
    asked = prompt.strip()[-_SHORTEST_ECHO:]
    if len(asked) < _SHORTEST_ECHO:
        return text
    place = text.find(asked)
    return text if place < 0 or not (rest := text[place + len(asked) :]).strip() else rest


def _without_reasoning(text: str, _: str) -> str:
    if not has_marks(text) or not (marks := list(REASONING_TAG.finditer(text))):
        return text
    after = text[marks[-1].end() :]
    is_closed = re.search(r"/|end_of", marks[-1][0]) is not None
    return after.lstrip() if is_closed and after.strip() else text


def _own_answer(text: str, _: str) -> str:
    return before_next_question(text)


_TEXT_CHANGED = "look at what stands between the model and the client (detokenizer, gateway, web frontend)"
REPAIRS: tuple[Repair, ...] = (
    Repair("html", Cause.TEXT_ALTERED, "hold HTML tags or escapes", _TEXT_CHANGED, _without_html),
    Repair("full width", Cause.TEXT_ALTERED, "are written in full-width letters or digits", _TEXT_CHANGED, _narrow),
    Repair("pieces", Cause.TEXT_ALTERED, "hold a tokenizer's marks in place of blanks", _TEXT_CHANGED, _joined_pieces),
    Repair("letters apart", Cause.TEXT_ALTERED, "have a blank after each letter", _TEXT_CHANGED, _joined_letters),
    Repair(
        "template",
        Cause.CHAT_TEMPLATE_DOUBLED,
        "hold the name of the role, or other marks of a chat template",
        "look at the chat template and at the end-of-turn token: the model writes the template's own text",
        _without_template,
    ),
    Repair(
        "echo",
        Cause.PROMPT_ECHOED,
        "repeat the end of the prompt",
        "ask without echo, or have the server return only what is new",
        _without_echo,
    ),
    Repair(
        "reasoning",
        Cause.REASONING_LEAKED,
        "hold tags of reasoning",
        "start the server with the model's reasoning parser, so that only the answer is scored",
        _without_reasoning,
    ),
    Repair(
        "next question",
        Cause.RUN_ON,
        "go on with a question of their own",
        "add a stop string for the next question, use the chat endpoint, or check the end-of-turn token",
        _own_answer,
    ),
)
"""All of them, in the order in which they are applied."""
CHARACTERS_CHANGED = frozenset(repair.name for repair in REPAIRS if repair.cause is Cause.TEXT_ALTERED)
"""Names of the repairs of how a text is written."""


class Step(NamedTuple):
    """A repair of one text."""

    name: str
    text: str
    """The text after it."""
    is_of_characters: bool = False
    """Whether it changes nothing but how the text is written."""


def steps_of(text: str, prompt: str) -> list[Step]:
    """The repairs that change a text, each applied to what those before it have made of it."""
    steps = []
    for repair in REPAIRS:
        repaired = repair.undo(text, prompt)
        if repaired != text:
            steps.append(Step(repair.name, repaired, repair.cause is Cause.TEXT_ALTERED))
            text = repaired
    return steps
