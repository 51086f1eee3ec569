"""Shows the names that docstrings refer to as code, without the role before them."""

from __future__ import annotations

import re

_REFERENCE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>~?([^<]+)</code>")


def on_page_content(html: str, **_: object) -> str:
    """MkDocs calls this with each page."""
    return _REFERENCE.sub(r"<code>\1</code>", html)
