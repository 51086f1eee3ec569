"""Finds NLTK's sentence splitter, which IFEval's scoring needs, before anything is asked.

lm-eval tries to download it while it loads the task, reports success in any case, and fails after the last request.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

from assay.errors import MissingDependencyError

_RESOURCE = "tokenizers/punkt_tab"


def require_punkt_tab() -> None:
    """Make NLTK find ``punkt_tab``: where NLTK looks itself, else in an installed llama-index-core, which carries it.

    Raises:
        MissingDependencyError: NLTK or its data is not there.
    """
    try:
        import nltk
    except ModuleNotFoundError:
        raise MissingDependencyError(
            'scoring needs the package nltk: pip install "assay[ifeval]", or "assay[helm]" for HELM\'s metrics'
        ) from None
    if _is_found():
        return
    if (carried := _carried_by_llama_index()) is not None:
        nltk.data.path.append(str(carried))
        if _is_found():
            return
    raise MissingDependencyError(
        "scoring needs NLTK's data set punkt_tab: `python -m nltk.downloader punkt_tab` downloads it; "
        "`pip install --no-deps llama-index-core` brings it where only a package index can be reached"
    )


@functools.cache
def needs_punkt_tab(folder: Path) -> bool:
    """Return whether Python files in a task's folder mention ``punkt_tab``."""
    return any(b"punkt_tab" in file.read_bytes() for file in folder.glob("*.py"))


def _is_found() -> bool:
    import nltk

    try:
        nltk.data.find(_RESOURCE)
    except LookupError:
        return False
    return True


def _carried_by_llama_index() -> Path | None:
    # The parent package is a namespace, so that looking does not import anything of llama-index.
    try:
        spec = importlib.util.find_spec("llama_index")
    except ValueError:
        return None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (carried := Path(folder) / "core" / "_static" / "nltk_cache").is_dir():
            return carried
    return None
