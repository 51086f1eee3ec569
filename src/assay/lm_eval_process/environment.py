"""Prepares the environment, working directory and data sets of a child process that runs lm-eval."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from assay.client.urls import models_url
from assay.errors import SpecificationError
from assay.tasks.index import task_index

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def child_environment(
    base_url: str, task: str, data_dir: str | None, api_key: str
) -> Iterator[tuple[dict[str, str], Path]]:
    """The child's environment and working directory, valid while the context is open.

    Raises:
        SpecificationError: `data_dir` is no folder.
        MissingDependencyError: the task needs NLTK's sentence splitter, which is not there.
    """
    environment = {
        **os.environ,
        "OPENAI_API_KEY": api_key,
        "OPENAI_API_BASE": models_url(base_url).partition("?")[0].removesuffix("/models"),
        "PYTHONUNBUFFERED": "1",
    }
    environment |= _sentence_splitter(task)
    if data_dir is None:
        yield environment, Path.cwd()
        return
    if not Path(data_dir).is_dir():
        raise SpecificationError(f"data_dir {data_dir!r} is no folder")
    data = Path(data_dir).absolute()
    environment |= _offline_settings()
    holds_repositories = _holds_repositories(data)
    if not holds_repositories and os.access(data, os.W_OK):
        yield environment | {"HF_DATASETS_CACHE": str(data)}, Path.cwd()
        return
    with tempfile.TemporaryDirectory(prefix="assay-datasets-", ignore_cleanup_errors=True) as cache:
        environment["HF_DATASETS_CACHE"] = cache
        _link_stored(data, Path(cache))
        if not holds_repositories:
            yield environment, Path.cwd()
            return
        # The datasets library takes a hub name for a folder where there is one, and keeps its rows under that name
        # whatever becomes of its files; so a cache serves one run.
        yield environment | _import_path(), data


def _holds_repositories(data: Path) -> bool:
    """Whether a folder holds ``<owner>/<name>/`` with files, rather than a cache of the datasets library."""
    for folder in data.glob("*/*/"):
        if folder.is_dir() and "___" not in folder.parent.name and folder.parent.name != "downloads":
            for file in folder.rglob("*"):
                if file.is_file() and file.suffix not in (".arrow", ".lock") and file.name != "dataset_info.json":
                    return True
    return False


def _link_stored(data: Path, cache: Path) -> None:
    """Link in `cache` what `data`, and the datasets library's own cache, hold of the hub's data sets."""
    from datasets import config

    for root in (data, Path(config.HF_DATASETS_CACHE)):
        # <owner>___<name>/<config>/<version>/<hash>/<file>; linked singly: the library writes files beside them.
        for file in root.glob("*___*/*/*/*/*"):
            shown = cache / file.relative_to(root)
            if file.is_file() and not shown.exists():
                shown.parent.mkdir(parents=True, exist_ok=True)
                shown.symlink_to(file.absolute())


def _offline_settings() -> dict[str, str]:
    """Spare the child minutes of retries where the hub is out of reach."""
    from assay.tasks.patches.datasets_library import hub_is_reachable

    return {} if hub_is_reachable() else {"HF_HUB_OFFLINE": "1"}


def _import_path() -> dict[str, str]:
    """Let the child import from another working directory what it would import from this one, and nothing else."""
    path = os.environ.get("PYTHONPATH")
    folders = ["", *(path.split(os.pathsep) if path else ())]
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(os.path.abspath(folder) for folder in folders)}


def _sentence_splitter(task: str) -> dict[str, str]:
    """Where NLTK finds its sentence splitter, if the task needs it: lm-eval would miss it after the last request."""
    from assay.tasks.nltk_data import needs_punkt_tab, require_punkt_tab

    paths = [entry.path for entry in map(task_index().entries.get, task.split(",")) if entry is not None]
    if not any(needs_punkt_tab(Path(path).parent) for path in paths if path is not None):
        return {}
    require_punkt_tab()
    import nltk

    return {"NLTK_DATA": os.pathsep.join(nltk.data.path)}
