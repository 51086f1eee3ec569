"""Error messages for a policy's values of the wrong type: the value, and what to write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay._util.per_cent import share_hint
from assay.specification import readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import msgspec

_EXPECTED = re.compile(
    r"(?P<place>\S+): (?:Expected `(?P<type>\w+)(?: \| null)?`, got `(?P<got>\w+)`|Invalid enum value .*)"
)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[(\.\.\.)\]")
_WANTED = {
    "float": "a number, such as 0.5",
    "int": "a whole number",
    "bool": "true or false, without quotes",
    "str": "text in quotes",
    "array": "a list in square brackets",
    "object": "a table",
}
_CHOICES = {
    "concurrency": "a whole number, or 'auto'",
    "correction": "'bonferroni', 'holm' or 'none'",
    "endpoint": "'chat' or 'completions'",
}
"""For keys that take certain words."""
_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "array": list, "object": dict}


def type_error_message(error: msgspec.ValidationError, document: dict[str, Any]) -> str:
    """A message with the wrong value and what its key needs.

    Args:
        error: msgspec's error.
        document: the policy as parsed from TOML.
    """
    said = readable(error)
    found = _EXPECTED.fullmatch(said)
    if found is None:
        return said
    steps = [(match[1], match[2]) for match in _STEP.finditer(found["place"])]
    name = next((key for key, _ in reversed(steps) if key), "")
    wanted = _CHOICES.get(name) or _WANTED.get(found["type"] or "")
    place = next(_places(document, steps, _TYPES.get(found["got"] or "str", object)), None)
    if wanted is None or place is None:
        return said
    where, value = place
    if isinstance(value, dict):
        advice = f": write [[{where}]]" if found["type"] == "array" else ""
        return f"{where} is a table; it must be {'a list of tables' if advice else wanted}{advice}"
    if isinstance(value, list):
        return f"{where} is a list; it must be {wanted}"
    instead = share_hint(value) if isinstance(value, str) else ""
    return f"{where} is {value!r}; it must be {wanted}{f': {instead}' if instead else ''}"


def _places(value: Any, steps: list[tuple[str, str]], kind: type, where: str = "") -> Iterator[tuple[str, Any]]:
    """Places and values of type `kind` that the steps lead to; a step with neither key nor number matches any key."""
    if not steps:
        if isinstance(value, kind):
            yield where, value
        return
    (key, number), rest = steps[0], steps[1:]
    if number and isinstance(value, list) and int(number) < len(value):
        yield from _places(value[int(number)], rest, kind, f"{where} {int(number) + 1}")
    elif isinstance(value, dict) and not number:
        for name in [key] if key else value:
            if name in value:
                yield from _places(value[name], rest, kind, f"{where}.{name}" if where else name)
