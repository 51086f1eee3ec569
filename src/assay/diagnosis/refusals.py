"""Recognises a text that refuses to answer, whoever wrote it: a model, or a filter between client and model."""

from __future__ import annotations

import re

_HEAD = 400
_SHORT = 240
# A pattern can match only if the text has one of these words, and searching for words is far quicker.
_REFUSING = ("sorry", "apolog", "unfortunately", "able to", "cannot", "can't", "can’t", "won't", "won’t", "as an ai")
_REFUSAL = re.compile(
    r"\b(?:sorry|apologi[sz]e|unfortunately)\b[^.\n]{0,60}\b(?:cannot|can't|can’t|unable|not able|won't)\b"
    r"|\bI(?: am|'m|’m) (?:unable|not able) to (?:assist|help|answer|provide|comply|fulfil|do)"
    r"|\bI (?:cannot|can't|can’t|won't|won’t) (?:assist|help|comply|answer|fulfil|provide|discuss|engage)"
    r"|\bas an ai\b",
    re.IGNORECASE,
)
_REFUSING_IN_SHORT = (
    *_REFUSING,
    *("afraid", "could not", "couldn't", "unable", "not allowed", "will not", "declin", "refus", "block", "reject"),
    *("filtered", "flagged", "removed", "denied", "prohibited", "inappropriate", "against", "violat", "nicht", "leid"),
    *("désol", "ne peux", "siento", "puedo", "dispiace", "non posso", "desculpe", "não posso"),
    *("抱歉", "对不起", "對不起", "无法", "申し訳", "お答え", "죄송", "извините", "не могу"),
)
_NOT_DOING = (
    r"(?:cannot|can't|can’t|could not|couldn't|unable to|not able to|not allowed to|won't|will not|declined? to"
    r"|refuse to)"
)
_DOING = r"(?:help|assist|answer|comply|respond|provide|fulfil|process|complete|discuss|continue|do (?:that|this))"
_ASKED = r"(?:request|prompt|question|message|content|input|response|conversation)"
_STOPPED = r"(?:declined|blocked|refused|rejected|filtered|flagged|removed|denied|prohibited|not allowed|inappropriate)"
_RULES = r"(?:polic(?:y|ies)|guidelines|rules of|terms of (?:use|service))"
_APOLOGY = re.compile(r"\W*(?:I['’]m |I am )?(?:so |very |truly )?(?:sorry|afraid|apologies)\W*", re.IGNORECASE)
_IN_OTHER_WORDS = re.compile(
    rf"\b{_NOT_DOING} (?:\w+ ){{0,3}}{_DOING}\b"
    rf"|\b{_ASKED}\b[^.\n]{{0,60}}\b{_STOPPED}\b"
    rf"|\b{_STOPPED}\b[^.\n]{{0,60}}\b{_ASKED}\b"
    rf"|\b(?:against|violat\w+) (?:\w+ ){{0,4}}{_RULES}\b"
    r"|\b(?:nicht (?:helfen|beantworten)|tut mir leid|désolée?|ne peux pas (?:vous aider|répondre)|lo siento"
    r"|no puedo (?:ayudar|responder)|mi dispiace|non posso (?:aiutar|rispondere)|desculpe"
    r"|não posso (?:ajudar|responder))"
    r"|抱歉|对不起|對不起|无法(?:回答|提供|协助)|申し訳|お答えできません|죄송|извините|не могу (?:помочь|ответить)",
    re.IGNORECASE,
)
"""In a longer text these may be what it is about."""


def is_refusal(text: str) -> bool:
    """Whether the text begins with a refusal, or is short and nothing but an apology or a refusal."""
    if (
        len(text) <= _SHORT
        and has_any(_REFUSING_IN_SHORT, text)
        and (_IN_OTHER_WORDS.search(text) or _APOLOGY.fullmatch(text))
    ):
        return True
    return has_any(_REFUSING, text[:_HEAD]) and _REFUSAL.search(text[:_HEAD]) is not None


def has_any(words: tuple[str, ...], text: str) -> bool:
    """Whether the text has one of some words, in lower case or not."""
    lowered = text.lower()
    for word in words:  # noqa: SIM110 - any() and its generator take twice as long, for every sample
        if word in lowered:
            return True
    return False
