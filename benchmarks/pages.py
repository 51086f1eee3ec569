"""Tables of the documentation that are computed. Each stands between markers of its name.

::

    <!-- name -->
    …
    <!-- end name -->
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


def publish(sections: Iterable[tuple[str, str]], page: Path | None) -> None:
    """Put each section, as it comes, into the page; print it where there is none."""
    for name, content in sections:
        if page:
            replace_section(page, name, content)
        else:
            print(f"\n{name}\n\n{content}")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], first: str = "---") -> str:
    """A table in Markdown, its figures to the right; `first` aligns the first column."""
    lines = [header, [first] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def replace_section(page: Path, name: str, content: str) -> None:
    """Put `content` between the markers of `name`."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"{page} has no section <!-- {name} --> … <!-- end {name} -->")
    page.write_text(pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text), encoding="utf-8")
