"""A tokenizer learnt on the spot from the data at hand, so that none has to be fetched."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from tests.small_tokenizer import write_small_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIZE = 4000
_LINES_A_FILE = 20


def write_tokenizer(folder: Path, data_dir: Path) -> str:
    """Write a tokenizer of 4000 tokens into `folder`; returns its path."""
    return write_small_tokenizer(folder, _lines(data_dir), _SIZE)


def _lines(data_dir: Path) -> Iterator[str]:
    for file in sorted(data_dir.glob("*/*/*/*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            yield from itertools.islice(lines, _LINES_A_FILE)
