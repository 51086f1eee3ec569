"""Documents read in blocks are those that iterating the data set gives."""

from itertools import islice
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest

from assay.tasks import documents as module
from assay.tasks.documents import copied, documents, is_plain
from assay.tasks.kept_rows import KeptRows

REPOSITORIES = (
    "EleutherAI/drop",
    "EleutherAI/lambada_openai",
    "EleutherAI/wikitext_document_level",
    "Rowan/hellaswag",
    "SaylorTwift/bbh",
    "TIGER-Lab/MMLU-Pro",
    "allenai/ai2_arc",
    "allenai/openbookqa",
    "allenai/winogrande",
    "aps/super_glue",
    "baber/piqa",
    "cais/mmlu",
    "google-research-datasets/mbpp",
    "google-research-datasets/nq_open",
    "google/IFEval",
    "juletxara/mgsm",
    "openai/gsm8k",
    "openai/openai_humaneval",
    "tau/commonsense_qa",
    "truthfulqa/truthful_qa",
    "wis-k/instruction-following-eval",
)
ROWS = 300


def table_files(folder: Path) -> list[Path]:
    """The smallest few files of each kind."""
    found = []
    for kind in ("parquet", "jsonl", "json"):
        found += sorted(folder.rglob(f"*.{kind}"), key=lambda path: path.stat().st_size)[:2]
    return [path for path in found if path.stat().st_size < 30_000_000]


def load(path: Path, cache: Path) -> Any:
    kind = "parquet" if path.suffix == ".parquet" else "json"
    return datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=str(cache))


@pytest.mark.parametrize("name", REPOSITORIES)
def test_every_data_set_reads_the_same(data_dir: Path, tmp_path: Path, name: str) -> None:
    files = table_files(data_dir / name)
    if not files:
        pytest.skip(f"no table of rows in {name}")
    for path in files:
        rows = load(path, tmp_path)
        if all(map(is_plain, rows.features.values())):
            kept = KeptRows.of({"train": rows}, ()).open(lambda: pytest.fail("asked the library"))
            assert kept is not None
            same_types(list(islice(kept["train"], ROWS)), list(islice(rows, ROWS)))
            assert kept["train"][len(rows) - 1] == rows[len(rows) - 1]
        rows = rows.select(range(min(len(rows), ROWS)))
        same_types(list(documents(rows)), list(rows))


def same_types(ours: Any, theirs: Any) -> None:
    assert ours == theirs
    assert repr(ours) == repr(theirs)


KINDS: dict[str, dict[str, list[Any]]] = {
    "text": {"a": ["x", None, "é"]},
    "numbers": {"a": [1, None, -(2**40)], "b": [0.1, float("inf"), None], "c": [True, False, None]},
    "lists": {"a": [["x", "y"], [], None], "b": [[1, 2], [3], []]},
    "lists of lists": {"a": [[["x"], []], [], [["y", "z"]]]},
    "records": {"a": [{"x": 1, "y": "b"}, {"x": 2, "y": None}, {"x": None, "y": "c"}]},
    "lists of records": {"a": [[{"x": 1}], [], [{"x": 2}, {"x": 3}]]},
    "dates": {"a": [np.datetime64("2020-01-01", "s"), np.datetime64("1999-12-31", "s"), None]},
    "bytes": {"a": [b"x", b"", None]},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block", [1, 2, 256])
def test_every_kind_of_value(kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK", block)
    rows = datasets.Dataset.from_dict(KINDS[kind])
    same_types(list(documents(rows)), list(rows))


def test_categories_and_fixed_shapes() -> None:
    features = datasets.Features(
        {"label": datasets.ClassLabel(names=["no", "yes"]), "grid": datasets.Array2D((2, 2), "int32")}
    )
    rows = datasets.Dataset.from_dict({"label": [0, 1], "grid": [[[1, 2], [3, 4]]] * 2}, features=features)
    assert repr(list(documents(rows))) == repr(list(rows))


def test_selected_filtered_and_shuffled_rows() -> None:
    rows = datasets.Dataset.from_dict({"n": list(range(700)), "text": [str(n) for n in range(700)]})
    for changed in (rows.select([5, 3, 600]), rows.filter(lambda row: row["n"] % 7 == 0), rows.shuffle(seed=1)):
        same_types(list(documents(changed)), list(changed))


def test_a_format_that_was_set_stays() -> None:
    rows = datasets.Dataset.from_dict({"n": [1, 2]}).with_format("numpy")
    assert [type(row["n"]) for row in documents(rows)] == [type(row["n"]) for row in rows] != [int, int]


def test_lists_and_other_iterables() -> None:
    rows = [{"a": 1}, {"a": 2}]
    assert list(documents(rows)) == rows
    assert list(documents(iter(rows))) == rows
    assert list(documents(datasets.Dataset.from_dict({"a": []}))) == []


@pytest.mark.parametrize(
    "doc", [{"a": "x", "b": ["y", None, 1.5], "c": {"d": [1]}, "e": [["z"], {"f": 2}]}, ["a", ["b"]], (1, [2]), {}]
)
def test_a_copy_shares_nothing_that_could_change(doc: Any) -> None:
    same_types(copied(doc), doc)
    assert not shared(copied(doc), doc)


def shared(one: Any, other: Any) -> bool:
    if isinstance(one, str | int | float | None):
        return False
    pairs = [(one[key], other[key]) for key in one] if isinstance(one, dict) else list(zip(one, other, strict=True))
    return one is other or any(shared(*pair) for pair in pairs)
