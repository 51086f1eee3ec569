"""Base URLs as people give them: one by one, or in a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.paths import expand_home
from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_LARGEST = 2**20


def read_addresses(texts: Iterable[str]) -> tuple[str, ...]:
    """All base URLs in `texts`, in the order given and without duplicates.

    Args:
        texts: each is one URL, several URLs separated by spaces, or ``@FILE``: a file with one URL a line. In a file,
            empty lines are skipped, and so are comments: ``#`` at the start of a line or after a space.

    Raises:
        SpecificationError: a file cannot be read or holds no URL, or `texts` is empty.
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
        with expand_home(name).open(encoding="utf-8-sig") as file:
            lines = file.read(_LARGEST).splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise SpecificationError(f"cannot read the base URLs in {name}: {reason}") from None
    named = [url for line in lines for url in _without_comment(line).split()]
    if not named:
        raise SpecificationError(f"{name} holds no base URL: write one a line")
    return named


def _without_comment(line: str) -> str:
    return "" if line.lstrip().startswith("#") else line.partition(" #")[0]
