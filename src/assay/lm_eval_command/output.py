"""Results under the name that ``--output_path NAME.json`` asks for, as lm-eval writes them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from assay._util.storage import write_error

if TYPE_CHECKING:
    from pathlib import Path


def copy_to(name: Path, results_file: Path) -> Path:
    """Copy a run's files beside `name`: the results as ``NAME_<time>.json``, samples files as they are called.

    Raises:
        StorageError, OutputError: they cannot be written.
    """
    time = results_file.stem.removeprefix("results_")
    copy = name.with_name(f"{name.stem}_{time}.json")
    try:
        for samples in results_file.parent.glob(f"samples_*_{time}.jsonl"):
            shutil.copyfile(samples, name.parent / samples.name)
        shutil.copyfile(results_file, copy)
    except OSError as error:
        raise write_error(f"cannot write {copy}", error) from None
    return copy
