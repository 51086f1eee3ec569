"""What all HTML pages are made with: the template engine, assets, and the policy that lets nothing foreign run."""

from __future__ import annotations

import base64
import hashlib
import os
import sys
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay._util.text import visible
from assay._version import __version__
from assay.reports.page import difference_bounds, score_bounds
from assay.reports.page_charts import course_words, evidence_words
from assay.reports.waterfall import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    import jinja2

ASSETS = Path(__file__).parent / "assets"


def joined(names: Iterable[str]) -> str:
    """These assets, one after another."""
    return "\n".join((ASSETS / name).read_text(encoding="utf-8").strip() for name in names)


def policy(scripts: list[str], style: str) -> str:
    """A Content-Security-Policy that allows these scripts and this style, by their hashes, and nothing else."""
    allowed = " ".join(map(_source, scripts)) or "'none'"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            f"style-src {_source(style)}",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _source(content: str) -> str:
    """How a Content-Security-Policy names content that is allowed."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def _compiled_templates() -> jinja2.BytecodeCache:
    """Keeps compiled templates beside compiled modules: to compile them takes longer than to use them."""
    import jinja2

    class BesideModules(jinja2.FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            with suppress(OSError):  # it is not writable, as for modules
                if not sys.dont_write_bytecode and os.path.isdir(self.directory):
                    super().dump_bytecode(bucket)

    return BesideModules(os.path.dirname(cache_from_source(__file__)), f"%s.{__version__}.jinja2")


def environment() -> jinja2.Environment:
    """The template engine: everything is escaped, and hidden characters are shown by their code points."""
    import jinja2
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(ASSETS),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_compiled_templates(),
    )
    environment.globals |= {"score_bounds": score_bounds, "difference_bounds": difference_bounds, "step_bounds": bounds}
    environment.globals |= {"course_words": course_words, "evidence_words": evidence_words}
    return environment
