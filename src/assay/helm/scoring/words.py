"""NLTK's word tokens, without running rules of its tokenizer that cannot match.

NLTK applies about thirty regular expressions to a text. Most of them need a character that the text does not have; this
module skips those and applies the others in NLTK's order. For an unknown version of NLTK it calls ``word_tokenize``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from assay.helm.scoring.nltk_package import import_nltk

_KNOWN_VERSIONS = ("3.9.", "3.10.")
_TRIGGERS = {
    "([«“‘„]|[`]+)": "«“‘„`",
    '^\\"': '"',
    "(``)": "`",
    "([ \\(\\[{<])(\\\"|\\'{2})": "\"'",
    "(?i)(?<!\\w)(\\')(?!(?:re|ve|ll|m|t|s|d|n)\\b)(?=\\w)": "'",
    "(?i)(\\')(?!re|ve|ll|m|t|s|d|n)(\\w)\\b": "'",
    "([^\\.])(\\.)([\\]\\)}>\"\\'»”’ ]*+)\\s*$": ".",
    "([^\\.])(\\.)([\\]\\)}>\"\\'»”’ ]*)\\s*$": ".",
    "([^\\.])(\\.)([\\]\\)}>\"\\']*)\\s*$": ".",
    "([:,])([^\\d])": ":,",
    "([:,])$": ":,",
    "\\.{2,}": ".",
    "[;@#$%&]": ";@#$%&",
    "[\\u2012-\\u2015]": "\u2012\u2013\u2014\u2015",
    "[?!]": "?!",
    "([^'])' ": "'",
    "[*]": "*",
    "[\\]\\[\\(\\)\\{\\}\\<\\>]": "][(){}<>",
    "--": "-",
    "([»”’])": "»”’",
    "''": "'",
    '"': '"',
    "\\s+": "'",  # single spaces matter only to the rules for apostrophes
    "([^' ])('[sS]|'[mM]|'[dD]|') ": "'",
    "([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ": "'",
}
"""By rule, characters of which a text must contain one for the rule to change anything."""
_MAY_CONTRACT = re.compile("cannot|gimme|gonna|gotta|lemme|wanna|'", re.IGNORECASE)
_INNER_SENTENCE_END = re.compile(r"[.?!](?=.)", re.DOTALL)


class _Rule(NamedTuple):
    expression: Any
    replacement: str
    triggers: frozenset[str] | None
    """``None`` for an unknown rule, which always runs."""


class _Rules(NamedTuple):
    opening: list[_Rule]
    closing: list[_Rule]
    """Run after a space is added at both ends."""
    contractions: list[Any]
    split_sentences: Any


def word_tokens(text: str) -> list[str]:
    """The tokens that NLTK's ``word_tokenize`` gives."""
    rules = _rules()
    if rules is None:
        from nltk.tokenize import word_tokenize

        return list(word_tokenize(text))
    text = text.rstrip()
    if _INNER_SENTENCE_END.search(text) is None:
        return _tokens(rules, text)
    return [token for sentence in rules.split_sentences(text) for token in _tokens(rules, sentence)]


def _tokens(rules: _Rules, text: str) -> list[str]:
    present = set(text)
    if '"' in present:
        present.update("`'")  # NLTK replaces double quotes by these
    for rule in rules.opening:
        if rule.triggers is None or not rule.triggers.isdisjoint(present):
            text = rule.expression.sub(rule.replacement, text)
    text = f" {text} "
    for rule in rules.closing:
        if rule.triggers is None or not rule.triggers.isdisjoint(present):
            text = rule.expression.sub(rule.replacement, text)
    if _MAY_CONTRACT.search(text):
        for expression in rules.contractions:
            text = expression.sub(r" \1 \2 ", text)
    return text.split()


@cache
def _rules() -> _Rules | None:
    import_nltk()
    import nltk
    from nltk.tokenize import NLTKWordTokenizer, sent_tokenize

    if not nltk.__version__.startswith(_KNOWN_VERSIONS):
        return None
    theirs = NLTKWordTokenizer
    opening = [*theirs.STARTING_QUOTES, *theirs.PUNCTUATION, theirs.PARENS_BRACKETS, theirs.DOUBLE_DASHES]
    return _Rules(
        [_rule(*rule) for rule in opening],
        [_rule(*rule) for rule in theirs.ENDING_QUOTES],
        [*theirs.CONTRACTIONS2, *theirs.CONTRACTIONS3],
        sent_tokenize,
    )


def _rule(expression: Any, replacement: str) -> _Rule:
    triggers = _TRIGGERS.get(expression.pattern)
    return _Rule(expression, replacement, None if triggers is None else frozenset(triggers))
