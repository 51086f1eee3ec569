"""Finds right answers that a filter missed: reads a text's conclusion and compares it with the gold answer.

It favours precision: only the conclusion counts, never a number or letter that merely occurs in the text.
"""

from __future__ import annotations

import ast
import functools
import re
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from assay.diagnosis.texts import NEXT_QUESTION

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_GOLD = 160
_LONGEST_LIST = 4000
"""Characters of a list of accepted answers; a longer one is not read."""
_END = 600
"""If no phrase marks the conclusion, it is looked for in this many characters at the end of the text."""
_LONGEST_LINE = _LONGEST_GOLD


class Where(StrEnum):
    """Where in a text its conclusion stands."""

    BOXED = "in \\boxed{}"
    HASHES = "after ####"
    PHRASE = "after 'answer is', 'Answer:' and the like"
    BOLD = "in bold type at the end"
    LAST_LINE = "alone on the last line"
    LAST_NUMBER = "as the last number"
    FENCED = "alone in a code block"
    FIELD = "in a field named answer"
    REASONING = "in the reasoning beside the content"
    BEFORE_NEXT_QUESTION = "before a question that the text goes on with"


class Conclusion(msgspec.Struct, frozen=True):
    """What a text states as its answer."""

    where: Where
    text: str


_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?|-?\.\d+")
_FINAL = re.compile(
    r"\b(?:answer|option|choice)\b(?: choice)?[^\n.:=]{0,40}?(?:\bis\b|\bwas\b|\bare\b|\bbe\b|:|=)"
    r"[ \n]*|^A:[ ]*",
    re.IGNORECASE | re.MULTILINE,
)
_BOLD = re.compile(r"\*\*([^*\n]{1,60})\*\*")
_LETTER = re.compile(r"^[\s*(\[{\"'`]*(?:option |choice )?[(\[]?([A-Za-z])(?:[)\]}.:,*\"`]|'(?![A-Za-z])|\s*$)")
_LETTER_GOLD = re.compile(r"^\(?([A-Za-z])\)?$")
_LATEX = re.compile(r"\\(?:text|mathrm|mathbf|textbf)\{([^{}]*)\}|\\[,;!: ]|\\left|\\right|\\\(|\\\)|\\\[|\\\]")
_UNITS = re.compile(r"[$€£%*`\"'“”‘’]|\\\$|\\%")
_ENCLOSED = re.compile(r"[(\[]([^()\[\]]+)[)\]]")
_FENCED = re.compile(r"```[a-z]*\n([^\n`]{1,160})\n```\s*$")
_FIELD = re.compile(
    r"[\"'](?:final_)?answer[\"']\s*:\s*(?:\"([^\"\n]{1,160})\"|'([^'\n]{1,160})'|([^\s,}\"']{1,40}))"
    r"|<(?:final_)?answer>\s*([^<]{1,160}?)\s*</(?:final_)?answer>",
    re.IGNORECASE,
)
"""An answer in JSON or XML."""
_HEDGE = re.compile(r"\b(?:or|and)\b[\s(\[]*[A-Za-z]\b(?![a-z])")
_FORMULA = re.compile(r"[\d\\^+=]")
"""Marks of a formula, which a longer text may merely begin with: x^2 + 1 begins with x^2."""
_END_OF_SENTENCE = re.compile(r"\n|(?<=[^\d\s.])\.(?:\s|$)|(?<=\d)\.(?:\s|$)")


def gold_of(target: str) -> str | None:
    r"""The answer in a task's target; None if the target is not a short answer.

    GSM8K's targets are worked solutions that end in ``#### 18``, MATH's hold a ``\boxed{}``.
    """
    if "####" in target:
        target = target.rpartition("####")[2]
    elif (boxed := _last_boxed(target)) is not None:
        target = boxed
    target = target.strip()
    if not target or len(target) > _LONGEST_GOLD or target.startswith(("[", "{")):
        return None
    return target


def golds_of(target: str) -> tuple[str, ...]:
    """All answers that a task's target accepts, each as by :func:`gold_of`; a target may be a list of them."""
    if target.startswith("["):
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            listed = ast.literal_eval(target[:_LONGEST_LIST])
            return tuple([gold for each in listed if isinstance(each, str) and (gold := gold_of(each))])
    gold = gold_of(target)
    return () if gold is None else (gold,)


def missed_answer(text: str, gold: str) -> Where | None:
    """Where a text states the gold answer as its conclusion; None if it concludes otherwise.

    Args:
        text: the text that a filter was given.
        gold: from :func:`gold_of`.
    """
    own = before_next_question(text)
    conclusion = conclusion_of(own, gold)
    if conclusion is None or not agrees(conclusion.text, gold):
        return None
    return conclusion.where if len(own) == len(text) else Where.BEFORE_NEXT_QUESTION


def before_next_question(text: str) -> str:
    """The text up to where it continues with a question of its own."""
    found = NEXT_QUESTION.search(text, 1)
    own = text[: found.start()] if found else text
    return own if own.strip() else text


def conclusion_of(text: str, gold: str) -> Conclusion | None:
    """What a text states as its answer; `gold` tells whether to look for a number."""
    return next(_conclusions(text, is_number=number_in(gold) is not None and _is_only_number(gold)), None)


def agrees(said: str, gold: str) -> bool:
    """Whether a conclusion is the gold answer: the same number, letter or words, in whatever notation."""
    said = said.strip()
    letter = _LETTER_GOLD.match(gold)
    if letter:
        found = _LETTER.match(_plain(said, keep_brackets=True))
        return found is not None and found[1].lower() == letter[1].lower() and not _HEDGE.search(said)
    if _is_only_number(gold):
        numbers = _NUMBER.findall(_plain(said))
        return bool(numbers) and _value(numbers[-1]) == number_in(gold)
    ours, wanted = _plain(said).lower().strip(" .,:;!"), _plain(gold).lower().strip(" .,:;!")
    if ours == wanted or not wanted or _FORMULA.search(wanted):
        return ours == wanted
    return ours.startswith(wanted) and not ours[len(wanted)].isalnum()


@functools.lru_cache(maxsize=1024)
def number_in(text: str) -> float | None:
    """The last number of a text."""
    found = _NUMBER.findall(_plain(text))
    return _value(found[-1]) if found else None


def _conclusions(text: str, *, is_number: bool) -> Iterator[Conclusion]:
    """The text's conclusion, the most explicit kind first."""
    boxed = _last_boxed(text)
    if boxed is not None:
        yield Conclusion(Where.BOXED, boxed)
    if "####" in text:
        yield Conclusion(Where.HASHES, text.rpartition("####")[2].strip().partition("\n")[0])
    if field := _last_field(text):
        yield Conclusion(Where.FIELD, field)
    if phrase := _after_last(_FINAL, text):
        yield Conclusion(Where.PHRASE, phrase)
    if fenced := _FENCED.search(text):
        yield Conclusion(Where.FENCED, fenced[1].strip())
    end = text[-_END:]
    if bold := _BOLD.findall(end):
        yield Conclusion(Where.BOLD, bold[-1])
    last_line = text.rstrip().rpartition("\n")[2].strip()
    if 0 < len(last_line) <= _LONGEST_LINE and not is_number:
        yield Conclusion(Where.LAST_LINE, last_line)
    if is_number and (numbers := _NUMBER.findall(_plain(end))):
        yield Conclusion(Where.LAST_NUMBER, numbers[-1])


def _after_last(pattern: re.Pattern[str], text: str) -> str | None:
    """The sentence after the last match that something follows."""
    for found in reversed(list(pattern.finditer(text))):
        sentence = _END_OF_SENTENCE.split(text[found.end() :], maxsplit=1)[0].strip()
        if sentence.strip(" *:."):
            return sentence
    return None


def _last_field(text: str) -> str | None:
    if "nswer" not in text:
        return None
    return next((next(filter(None, found.groups())) for found in reversed(list(_FIELD.finditer(text)))), None)


def _last_boxed(text: str) -> str | None:
    r"""What stands in the last ``\boxed{}``, with the braces in it balanced."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    begin = text.index("{", start) + 1
    depth = 1
    for place in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[begin:place]
    return None


def _plain(text: str, *, keep_brackets: bool = False) -> str:
    if "\\" in text:
        text = _LATEX.sub(lambda found: found[1] or "", text)
    text = _UNITS.sub("", text).replace("{,}", ",").replace("\u2212", "-")
    if not keep_brackets and (enclosed := _ENCLOSED.fullmatch(text.strip())):
        text = enclosed[1]
    return " ".join(text.split())


@functools.lru_cache(maxsize=1024)
def _is_only_number(gold: str) -> bool:
    return _NUMBER.fullmatch(_plain(gold).replace(" ", "")) is not None


def _value(number: str) -> float:
    return float(number.replace(",", "").rstrip("."))
