"""Tables of the documentation that are computed. Each stands between markers of its name.

::

    <!-- name -->
    …
    <!-- end name -->
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def replace_section(page: Path, name: str, content: str) -> None:
    """Put `content` between the markers of `name`."""
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        sys.exit(f"{page} has no section <!-- {name} --> … <!-- end {name} -->")
    page.write_text(pattern.sub(lambda match: f"{match[1]}{content}\n{match[2]}", text), encoding="utf-8")
