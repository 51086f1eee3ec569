"""Finds signs in a text: loops, gibberish, leaked reasoning, template markers, refusals, another script.

Model output is hostile input: every pattern here takes linear time, and of long texts only parts are examined.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.diagnosis.refusals import has_any, is_refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

_TAIL = 600
_LONGEST_PERIOD = 150
_REPETITIONS = 4
_SHORTEST_LOOP = 200
_LOOP_CLOSE = 16
_LOOP_PACKED = 0.35
"""A loop compresses at least to this share; a text that does not is no loop."""
_PACKED_LENGTH = 1500
_PACKED_SHARE = 0.08
"""Ordinary prose of that length compresses to about 0.45 of its size, worked arithmetic to 0.25."""
_FEWEST_CHARACTERS = 20
_LOOKED_AT = 1200
"""Characters of a text from which its language is recognised."""


class Sign(StrEnum):
    """A sign in a text."""

    REASONING_TAGS = "reasoning_tags"
    TEMPLATE_MARKERS = "template_markers"
    REPETITIVE = "repetitive"
    GIBBERISH = "gibberish"
    WRONG_LANGUAGE = "wrong_language"
    REFUSED = "refused"


REASONING_TAG = re.compile(
    r"</?(?:think|thinking|thought|reasoning|scratchpad)>|\[/?THINK\]|<\|channel\|>|<\|(?:begin|end)_of_thought\|>|◁/?think▷",
    re.IGNORECASE,
)
_TEMPLATE_MARKER = re.compile(
    r"<\|(?:im_start|im_end|eot_id|start_header_id|end_header_id|user|assistant|endoftext)\|>|\[/?INST\]"
    r"|<(?:start|end)_of_turn>|^[ ]{0,4}(?:user|human|assistant)[ ]?:",
    re.IGNORECASE | re.MULTILINE,
)
NEXT_QUESTION = re.compile(
    r"^[ ]{0,4}(?:\*\*)?(?:Q|Question|Problem|Input|Instruction|User|Human)(?: ?\d+)?(?:\*\*)? ?[:.]", re.MULTILINE
)
"""Where a text begins a question of its own."""
# A pattern can match only if the text has one of these words, and searching for words is far quicker.
_ROLES = ("user", "human", "assistant")
_CODING = ("def ", "return", "{", "}", ";", "```")
_CODE = re.compile(r"\bdef |\breturn\b|[{};]\s*$|```", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]+")
_COMMON_ENGLISH = frozenset(
    re.findall(
        r"\w+",
        "the of and to a in is that it for as was with be by on not he she his her they their this are or had "
        "have has but from at which so if we you all there can will one each then what how many an i my do "
        "does were been its who",
    )
)
_COMMON_ELSEWHERE = frozenset(
    re.findall(
        r"\w+",
        "el los las una del que por para con como pero más está esta este se lo su y muy "
        "le les des du une et est dans pour qui sur pas avec ce cette nous vous il elle sont "
        "der das und ist nicht ein eine einen dem den mit auf für von sich auch wird als zu im "
        "il della di che per una non sono gli nel con alla o da os um uma não com mais ao pela "
        "het een van niet dat voor zijn",
    )
)
"""Common words of Spanish, French, German, Italian, Portuguese and Dutch that are no common English ones."""
_FEWEST_SHORT = 8
_ELSEWHERE = 0.25
"""Least share of these words in a text of those languages; prose has about 0.4."""
_FEWEST_WORDS = 40
_ENGLISH = 0.12
"""Least share of these words in an English prompt; English prose has about 0.45."""
_ENGLISH_IF_SHORT = 0.25
_FEWEST_ASKED = 6
_NOT_ENGLISH = 0.05
_BEYOND_ENGLISH = 3
"""A short text in another language has more than so many times as many of its common words as of English ones."""
_FEWEST_LETTERS = 40
"""Letters of a prompt that tell its script."""
_FEWEST_FOREIGN_LETTERS = 8
"""Letters of an answer that tell its script: more than a formula's Greek ones, fewer than a Chinese sentence has."""


_MANY_SCRIPTS = 3
"""Scripts that no word has, and that few texts have all of."""
_LATIN_WORD = re.compile(r"\b[a-zA-Z]{4,}\b")
_UNSAYABLE = re.compile(r"\b[bcdfghjklmnpqrstvwxz]{4,}\b|[bcdfghjklmnpqrstvwxz]{6}", re.IGNORECASE)
"""A word of four or more letters without a vowel, or six consonants on end."""
_VOWELS = 0.2
"""Share of a text's characters that are vowels; English prose has about 0.3."""
_STRETCH = 20
"""Words, of four or more letters, that are looked at together."""
_FEWEST_UNSAYABLE = 5

_NONE: frozenset[Sign] = frozenset()


def signs_of(text: str, prompt: str, target: str = "") -> frozenset[Sign]:
    """All signs in an answer.

    Args:
        text: the model's answer.
        prompt: the prompt, whose end says which language the answer should have.
        target: the right answer; if it is in another language than the prompt, the answer may be too.
    """
    return frozenset(_signs(text, prompt, target)) or _NONE


def _signs(text: str, prompt: str, target: str) -> Iterator[Sign]:
    if has_marks(text) and REASONING_TAG.search(text):
        yield Sign.REASONING_TAGS
    if (has_marks(text) or has_any(_ROLES, text)) and _TEMPLATE_MARKER.search(text):
        yield Sign.TEMPLATE_MARKERS
    if is_repetitive(text):
        yield Sign.REPETITIVE
    elif is_gibberish(text):
        yield Sign.GIBBERISH
    elif is_in_another_language(text, prompt) and not is_in_another_language(target, prompt):
        yield Sign.WRONG_LANGUAGE
    if is_refusal(text):
        yield Sign.REFUSED


def has_marks(text: str) -> bool:
    """Whether the text can contain tags or markers at all; far quicker than searching for them."""
    return "<" in text or "[" in text or "◁" in text


def is_repetitive(text: str) -> bool:
    """Whether the text ends in a loop, or is one word over and over."""
    stripped = text.strip()
    if len(stripped) >= _FEWEST_CHARACTERS and len(set(stripped)) <= 3:
        return True
    words = stripped.split()
    if len(words) >= 12 and len(set(words)) <= 2:
        return True
    if len(stripped) < _SHORTEST_LOOP:
        return False
    # In a loop the last few characters also occur earlier; searching for them is far quicker.
    may_loop = stripped[-_LOOP_CLOSE:] in stripped[-_TAIL:-1]
    return (
        may_loop
        and any(
            _packed(stripped[-length:]) <= _LOOP_PACKED and _ends_in_loop(stripped[-length:])
            for length in (_SHORTEST_LOOP, _TAIL)
        )
    ) or (len(stripped) >= _PACKED_LENGTH and _packed(stripped[-_PACKED_LENGTH:]) < _PACKED_SHARE)


def is_gibberish(text: str) -> bool:
    """Whether the text has many broken characters, words of mixed scripts, or words that nobody can say.

    Of a long text both ends are looked at: it may begin well.
    """
    if len(text) <= _LOOKED_AT:
        return _is_broken(text)
    return _is_broken(text[:_LOOKED_AT]) or _is_broken(text[-_LOOKED_AT:])


def _is_broken(sample: str) -> bool:
    broken = sample.count("\ufffd") + sample.count("\x00")
    if broken >= 3 and broken > len(sample) / 100:
        return True
    if not sample.isascii() and _mixes_scripts(_WORD.findall(sample)):
        return True
    # Counting vowels is far quicker than looking at words.
    return sum(map(sample.count, "aeiou")) < _VOWELS * len(sample) and _is_unsayable(sample)


def _mixes_scripts(words: list[str]) -> bool:
    scripts = [scripts_of(word) for word in words]
    mixed = sum(len(each) > 1 for each in scripts)
    if mixed >= 3 and mixed > len(words) / 10:
        return True
    return any(len(each) >= _MANY_SCRIPTS and each.total() >= _FEWEST_FOREIGN_LETTERS for each in scripts) or (
        len([name for name, count in sum(scripts, Counter()).items() if count >= 2]) > _MANY_SCRIPTS
    )


def _is_unsayable(sample: str) -> bool:
    """Whether many words within one stretch of the text have no vowel, or consonants only for long."""
    long = [word.lower() for word in _LATIN_WORD.findall(sample) if not word.isupper()]
    for start in range(0, max(1, len(long) - _STRETCH + 1), _STRETCH // 2):
        stretch = long[start : start + _STRETCH]
        unsayable = [word for word in stretch if _UNSAYABLE.search(word)]
        if len(set(unsayable)) >= max(_FEWEST_UNSAYABLE, len(stretch) / 3):
            return True
    return False


def is_in_another_language(text: str, prompt: str) -> bool:
    """Whether the text has another script than the prompt, or is not English although the prompt is."""
    text, prompt = text[:_LOOKED_AT], prompt[-_LOOKED_AT:]
    if _is_foreign_to_ascii(text) or _is_foreign_to_ascii(prompt):
        asked, said = scripts_of(prompt), scripts_of(text)
        if asked.total() >= _FEWEST_LETTERS and said.total() >= _FEWEST_FOREIGN_LETTERS:
            script = asked.most_common(1)[0][0]
            if said[script] < said.total() / 2:
                return True
    if _is_in_a_known_language(text) and _is_english_question(prompt):
        return True
    if _is_surely_english(text):
        return False
    share = _english(text)
    if share is None or share >= _NOT_ENGLISH or (has_any(_CODING, text) and _CODE.search(text)):
        return False
    asked_share = _english(prompt)
    return asked_share is not None and asked_share > _ENGLISH


def _is_foreign_to_ascii(text: str) -> bool:
    """Whether more than a tenth of the text is not ASCII, so that its script may not be Latin."""
    return not text.isascii() and len(text.encode("ascii", "ignore")) < 0.9 * len(text)


def scripts_of(text: str) -> Counter[str]:
    """By script, how many letters the text has."""
    return Counter(_script(ord(letter)) for word in _WORD.findall(text) for letter in word)


def _script(code: int) -> str:
    if code < 0x250 or 0x1E00 <= code < 0x1F00 or 0xFF21 <= code < 0xFF5B:  # the last ones are full-width letters
        return "latin"
    for name, first, last in _SCRIPTS:
        if first <= code <= last:
            return name
    return "other"


_SCRIPTS = (
    ("greek", 0x370, 0x3FF),
    ("cyrillic", 0x400, 0x52F),
    ("hebrew", 0x590, 0x5FF),
    ("arabic", 0x600, 0x77F),
    ("indic", 0x900, 0xDFF),
    ("thai", 0xE00, 0xE7F),
    ("east asian", 0x2E80, 0x9FFF),
    ("hangul", 0xAC00, 0xD7AF),
    ("east asian", 0xF900, 0xFAFF),
)


def _is_surely_english(text: str) -> bool:
    """Whether the words without punctuation suffice to recognise English; far quicker than stripping all words."""
    words = text.lower().split()
    return len(list(filter(_COMMON_ENGLISH.__contains__, words))) >= _NOT_ENGLISH * len(words)


def _is_english_question(prompt: str) -> bool:
    """Whether a prompt, however short, is in English."""
    words = [_bare_word(word) for word in prompt.lower().split()]
    common = len(list(filter(_COMMON_ENGLISH.__contains__, words)))
    least = _ENGLISH if len(words) >= _FEWEST_WORDS else _ENGLISH_IF_SHORT
    return len(words) >= _FEWEST_ASKED and common >= least * len(words) and not _is_in_a_known_language(prompt)


def _is_in_a_known_language(text: str) -> bool:
    """Whether even a short text is surely in one of the languages whose common words are listed."""
    words = [_bare_word(word) for word in text.lower().split()]
    if len(words) < _FEWEST_SHORT:
        return False
    common = len(list(filter(_COMMON_ELSEWHERE.__contains__, words)))
    if common < _ELSEWHERE * len(words):
        return False
    # English has words of other languages' lists, and they have its "a" and "me".
    return common > _BEYOND_ENGLISH * len(list(filter(_COMMON_ENGLISH.__contains__, words)))


def _english(text: str) -> float | None:
    words = [word for word in map(_bare_word, text.lower().split()) if word.isalpha()]
    if len(words) < _FEWEST_WORDS:
        return None
    return len(list(filter(_COMMON_ENGLISH.__contains__, words))) / len(words)


def _bare_word(word: str) -> str:
    return word.strip(".,:;!?()'\"*")


def _ends_in_loop(tail: str) -> bool:
    """Whether the tail ends in one piece repeated several times, by the prefix function of its reverse (Knuth 1977)."""
    backwards = tail[::-1]
    borders = [0] * len(backwards)
    for place in range(1, len(backwards)):
        border = borders[place - 1]
        while border and backwards[place] != backwards[border]:
            border = borders[border - 1]
        borders[place] = border + (backwards[place] == backwards[border])
        period = place + 1 - borders[place]
        if place + 1 >= max(_SHORTEST_LOOP, _REPETITIONS * period) and period <= _LONGEST_PERIOD:
            return True
    return False


def _packed(text: str) -> float:
    """The compressed size of the text as a share of its size."""
    plain = text.encode("utf-8", "replace")
    return len(zlib.compress(plain)) / len(plain)
