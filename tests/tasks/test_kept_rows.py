"""Rows that an earlier run has kept are those that the datasets library gives, and are used until something changes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import datasets
import pytest

from assay.errors import DataNotFoundError
from assay.tasks import file_hashes
from assay.tasks.data import DataSource, data_source
from assay.tasks.documents import documents
from assay.tasks.library import load_tasks
from assay.tasks.rows import Rows, is_table
from assay.types import TaskOptions
from tests.servers.scripted import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

README = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: train.jsonl
  - split: test
    path: test.jsonl
dataset_info:
  features:
  - name: q
    dtype: string
  - name: n
    dtype: int64
  - name: tags
    list: string
  - name: label
    dtype:
      class_label:
        names: ['no', 'yes']
---
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(file_hashes, "_SETTLED_NS", -1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "owner" / "Sums"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text(README)
    write_rows(folder / "train.jsonl", 3)
    write_rows(folder / "test.jsonl", 700)
    return tmp_path / "data"


def write_rows(path: Path, count: int) -> None:
    rows = ({"q": f"é {n}" if n % 5 else None, "n": n, "tags": ["a"] * (n % 3), "label": n % 2} for n in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def library(data: Path) -> Iterator[Any]:
    """The splits as the datasets library gives them, which later sources then know of."""
    with data_source(str(data)) as source:
        yield source.load("owner/Sums")


def kept(data: Path) -> Any:
    source = DataSource(str(data))
    splits = source.kept("owner/Sums", None, trust_remote_code=True)
    assert splits is None or len(source.files["owner/Sums"]) == 2
    return splits


def same(ours: Any, theirs: Any) -> None:
    assert repr(list(ours)) == repr(list(theirs))


def test_rows_are_those_of_the_library(data: Path, library: Any) -> None:
    rows, theirs = kept(data)["test"], library["test"]
    assert isinstance(rows, Rows)
    assert len(rows) == len(theirs) == 700
    same(rows, theirs)
    same(documents(rows), theirs)
    assert [rows[n] for n in (0, 256, -1)] == [theirs[n] for n in (0, 256, -1)]
    with pytest.raises(IndexError):
        rows[700]
    assert list(rows.features) == list(theirs.features) == rows.column_names
    assert rows.features["label"].names == ["no", "yes"]
    assert set(kept(data)) == {"train", "test"}


def test_filtered_rows_are_those_of_the_library(data: Path, library: Any) -> None:
    rows, theirs = kept(data)["test"], library["test"]
    for wanted in (
        lambda row: row["n"] % 7 == 0,
        lambda row: row["n"] > 650,
        lambda row: False,
        lambda row: "tags" in row and row.get("missing") is None and len(row) == 4,
        lambda row: row.pop("n") < 300,  # a row that is a dictionary, as the library's is
    ):
        same(rows.filter(wanted), theirs.filter(wanted))
    same(rows.filter(lambda row: row["n"] < 9).filter(lambda row: row["n"] > 2), list(theirs)[3:9])
    assert rows.filter(lambda row: row["n"] == 5)[0] == theirs[5]
    with pytest.raises(KeyError):
        rows.filter(lambda row: row["nothing"])


def test_what_rows_do_not_do_themselves_the_library_does(data: Path, library: Any) -> None:
    rows, theirs = kept(data)["test"], library["test"]
    assert rows[3:5] == theirs[3:5]
    assert rows["n"][:] == theirs["n"][:]
    some = rows.filter(lambda row: row["n"] > 650)
    assert isinstance(some.map(lambda row: {"n": row["n"] + 1}), datasets.Dataset)
    same(some.map(lambda row: {"n": row["n"] + 1}), [{**row, "n": row["n"] + 1} for row in list(theirs)[651:]])
    same(rows.filter(lambda row, place: place < 3, with_indices=True), list(theirs)[:3])
    same(rows.shuffle(seed=1), theirs.shuffle(seed=1))
    assert is_table(rows)
    assert is_table(theirs)
    assert not is_table([{}])


def test_another_split_is_told(data: Path, library: Any) -> None:
    with pytest.raises(DataNotFoundError, match=r"owner/Sums has no split 'dev' \(it has: train, test\)"):
        kept(data)["dev"]


def test_nothing_is_known_of_what_was_never_loaded_or_has_changed(data: Path) -> None:
    folder = data / "owner" / "Sums"
    assert kept(data) is None
    for change in (
        lambda: write_rows(folder / "test.jsonl", 600),
        lambda: (folder / "test-more.jsonl").write_text("{}"),
        lambda: (folder / "README.md").write_text(README + "\nWords.\n"),
        lambda: (folder / "test-more.jsonl").unlink(),
    ):
        with data_source(str(data)) as source:
            expected = list(source.load("owner/Sums")["test"])
        same(kept(data)["test"], expected)
        change()
        assert kept(data) is None


def test_files_that_may_change_unseen_are_not_relied_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as young:
        young.setattr(file_hashes, "_SETTLED_NS", 10**15)
        DataSource(str(data)).load("owner/Sums")
    assert kept(data) is None
    (tmp_path / "elsewhere").mkdir()
    (data / "owner" / "Sums" / "linked").symlink_to(tmp_path / "elsewhere")
    DataSource(str(data)).load("owner/Sums")
    assert kept(data) is None


@pytest.mark.parametrize("damage", ["cut", "gone", "fewer"])
def test_damaged_rows_are_made_again(data: Path, tmp_path: Path, library: Any, damage: str) -> None:
    expected = list(library["test"])
    (file,) = (tmp_path / "cache" / "datasets").rglob("*-test.arrow")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:1000])
    elif damage == "gone":
        file.unlink()
    else:
        (other,) = (tmp_path / "cache" / "datasets").rglob("*-train.arrow")
        file.write_bytes(other.read_bytes())
    assert kept(data) is None
    if damage != "fewer":
        same(DataSource(str(data)).load("owner/Sums")["test"], expected)


def test_rows_that_need_decoding_are_left_to_the_library(data: Path) -> None:
    readme = data / "owner" / "Sums" / "README.md"
    readme.write_text(README.replace("dtype: int64", "dtype: timestamp[s]"))
    DataSource(str(data)).load("owner/Sums")
    assert kept(data) is None


TASK = """task: {name}
dataset_path: owner/Sums
test_split: test
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: n
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""


def test_a_task_takes_kept_rows_unless_its_own_python_sees_them(data: Path, library: Any, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "plain.yaml").write_text(TASK.format(name="sums_plain"))
    (tasks / "utils.py").write_text("def prepared(docs):\n    return docs.select(range(2))\n")
    (tasks / "own.yaml").write_text(TASK.format(name="sums_own") + "process_docs: !function utils.prepared\n")
    options = TaskOptions(data_dir=str(data), include_path=str(tasks))
    loaded = load_tasks(["sums_plain", "sums_own"], options, {})
    assert isinstance(loaded.tasks["sums_plain"].eval_docs, Rows)
    own: Any = loaded.tasks["sums_own"]
    assert type(own.dataset["test"]) is datasets.Dataset
    same(loaded.tasks["sums_plain"].eval_docs, library["test"])
    assert [file.path for file in loaded.data_files["owner/Sums"]] == [
        "owner/Sums/test.jsonl",
        "owner/Sums/train.jsonl",
    ]


@pytest.mark.slow
def test_a_run_over_kept_rows_does_without_the_library(data: Path, library: Any, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "plain.yaml").write_text(TASK.format(name="sums_plain"))
    code = (
        "import sys\nfrom assay import Specification, ModelSpec, TaskOptions, evaluate\n"
        "from assay.tasks import file_hashes\nfile_hashes._SETTLED_NS = -1\n"
        "url, data, tasks, output = sys.argv[1:]\n"
        "options = TaskOptions(data_dir=data, include_path=tasks, limit=5)\n"
        "model = ModelSpec(base_url=url, model='scripted-model')\n"
        "evaluate(Specification(tasks=('sums_plain',), model=model, options=options, output_dir=output))\n"
        "heavy = ('datasets.load', 'pandas', 'requests.api', 'sacrebleu.metrics')\n"
        "print([name for name in heavy if name in sys.modules])\n"
        "import datasets, requests\nprint(datasets.Dataset.from_dict({'a': [1]})[0], requests.get.__name__)\n"
    )
    with ScriptedServer(lambda _: "5") as server:
        command = [sys.executable, "-c", code, server.url, str(data), str(tasks), str(tmp_path / "out")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["[]", "{'a': 1} get"], "")
