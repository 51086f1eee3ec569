"""Gives tasks rows that are kept on the disk, without importing the datasets library."""

from __future__ import annotations

import functools
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.tasks.data import DataSource
    from assay.tasks.protocol import Task


@contextmanager
def using_kept_rows(source: DataSource) -> Iterator[None]:
    """Give tasks that are built in this block their kept rows; those without any load data as in lm-eval."""
    from lm_eval.api.task import ConfigurableTask

    download = ConfigurableTask.download

    def take_or_download(self: Any, dataset_kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        rows = None
        if _only_goes_through_rows(self):
            if dataset_kwargs:
                dataset_kwargs.pop("trust_remote_code", None)  # as lm-eval does
            rows = source.kept(self.DATASET_PATH, self.DATASET_NAME, **(dataset_kwargs or {}))
        if rows is None:
            download(self, dataset_kwargs, **options)
        else:
            self.dataset = rows

    ConfigurableTask.download = take_or_download
    try:
        yield
    finally:
        ConfigurableTask.download = download


def _only_goes_through_rows(task: Task) -> bool:
    """Whether no Python but lm-eval's own sees the rows as a table."""
    from lm_eval.api.task import ConfigurableTask

    if type(task) is not ConfigurableTask or callable(task.config.custom_dataset):
        return False
    examples = vars(task)["fewshot_cfg"]
    return all(
        function is None or _is_of_lm_eval(function) for function in (task.config.process_docs, examples.process_docs)
    )


def _is_of_lm_eval(function: Any) -> bool:
    import lm_eval

    while isinstance(function, functools.partial) or hasattr(function, "__wrapped__"):
        function = function.func if isinstance(function, functools.partial) else function.__wrapped__
    code = getattr(function, "__code__", None)
    return code is not None and Path(code.co_filename).is_relative_to(Path(lm_eval.__file__).parent)
