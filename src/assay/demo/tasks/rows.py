"""Where the task ``assay_demo`` gets its rows: the JSON lines files beside this module.

lm-eval resolves ``data_files`` against the working directory; a loader of the task's own finds them from anywhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import DatasetDict


def load_rows(**_metadata: object) -> DatasetDict:
    """Give the splits ``train`` (few-shot examples) and ``test``; called by lm-eval with the task's metadata."""
    from datasets import Dataset, DatasetDict

    def read(split: str) -> Dataset:
        lines = Path(__file__).with_name(f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
        return Dataset.from_list([json.loads(line) for line in lines])

    return DatasetDict(train=read("train"), test=read("test"))
