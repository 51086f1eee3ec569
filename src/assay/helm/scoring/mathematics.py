r"""Are two answers in LaTeX the same apart from notation?

The rules are those of the MATH benchmark (Hendrycks et al. 2021, https://arxiv.org/abs/2103.03874):
superfluous LaTeX, units, percent and degree signs are removed; ``\frac12``, ``1/2`` and ``\sqrt3`` get braces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.helm.scoring.text import Text

_SUPERFLUOUS = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
_UNIT_BEGINS = "\\text{ "


class _UnreadableError(Exception):
    """A rule cannot be applied to this text; both texts are then compared unchanged."""


def math_equiv(gold: Text, prediction: Text) -> float:
    """1.0 if both texts are the same answer."""
    return _equivalent(gold.raw, prediction.raw)


def math_equiv_chain_of_thought(gold: Text, prediction: Text) -> float:
    r"""1.0 if the last ``\boxed`` answers are the same, or neither text has one."""
    return _equivalent(_boxed_answer(gold.raw), _boxed_answer(prediction.raw))


def _equivalent(first: str | None, second: str | None) -> float:
    if first is None or second is None:
        return float(first is second)
    try:
        return float(_canonical(first) == _canonical(second))
    except _UnreadableError:
        return float(first == second)


def _boxed_answer(text: str) -> str | None:
    begin = text.rfind("\\boxed")
    if begin < 0:
        return None  # the benchmark's code finds \fbox as well, but cannot extract its answer
    depth = 0
    for position in range(begin, len(text)):
        depth += (text[position] == "{") - (text[position] == "}")
        if text[position] == "}" and depth == 0:
            boxed = text[begin : position + 1]
            return boxed.removeprefix("\\boxed{")[:-1] if boxed.startswith("\\boxed{") else None
    return None


def _canonical(text: str) -> str:
    for old, new in _SUPERFLUOUS:
        text = text.replace(old, new)
    text = _without_unit(text).replace("\\%", "")
    text = text.replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text[0] == ".":
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _with_braced_fractions(_with_braced_roots(text).replace(" ", ""))
    if text == "0.5":
        return "\\frac{1}{2}"
    return _with_slash_as_fraction(text)


def _without_unit(text: str) -> str:
    parts = text.split(_UNIT_BEGINS)
    if len(parts) > 2:
        raise _UnreadableError
    return parts[0]


def _with_braced_roots(text: str) -> str:
    before, *roots = text.split("\\sqrt")
    if "" in roots:
        raise _UnreadableError
    return before + "".join("\\sqrt" + (root if root[0] == "{" else f"{{{root[0]}}}{root[1:]}") for root in roots)


def _with_braced_fractions(text: str) -> str:
    before, *fractions = text.split("\\frac")
    result = before
    for fraction in fractions:
        if not fraction:
            raise _UnreadableError
        if fraction[0] == "{":
            result += "\\frac" + fraction
        elif len(fraction) < 2:
            return text
        elif fraction[1] == "{":
            result += f"\\frac{{{fraction[0]}}}{fraction[1:]}"
        else:
            result += f"\\frac{{{fraction[0]}}}{{{fraction[1]}}}{fraction[2:]}"
    return result


def _with_slash_as_fraction(text: str) -> str:
    parts = text.split("/")
    if len(parts) != 2:
        return text
    try:
        numerator, denominator = int(parts[0]), int(parts[1])
    except ValueError:
        return text
    if text != f"{numerator}/{denominator}":
        return text
    return f"\\frac{{{numerator}}}{{{denominator}}}"
