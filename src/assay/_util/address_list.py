"""Base URLs as people give them: one by one, or in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.paths import at_home
from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGEST = 2**20


def read_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """All base URLs in `texts`, each once, in the order in which they are named.

    Args:
        texts: each a URL, several with blanks between them, or ``@FILE``: a file with one URL a line, in which empty
            lines, and all from a ``#`` at the beginning of a line or after a blank, mean nothing.

    Raises:
        SpecificationError: a file cannot be read or names no URL, or there is nothing at all.
    """
    addresses: dict[str, None] = {}
    for text in texts:
        named = _in_file(text[1:]) if text.startswith("@") else text.split()
        addresses.update(dict.fromkeys(named))
    if not addresses:
        raise SpecificationError("no base URL is given")
    return tuple(addresses)


def _in_file(name: str) -> list[str]:
    try:
        with at_home(name).open(encoding="utf-8-sig") as file:
            lines = file.read(_LARGEST).splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SpecificationError(f"cannot read the base URLs in {name}: {reason}") from None
    named = [url for line in lines for url in _without_comment(line).split()]
    if not named:
        raise SpecificationError(f"{name} names no base URL: write one a line")
    return named


def _without_comment(line: str) -> str:
    return "" if line.lstrip().startswith("#") else line.partition(" #")[0]
