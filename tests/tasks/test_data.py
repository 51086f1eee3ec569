"""Data sets from every place, and one clear line where one is missing or damaged."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import DataNotFoundError, FileFormatError, SpecificationError
from assay.tasks.data import DataSource, data_source
from assay.tasks.file_hashes import DataFile, FileHashes
from assay.tasks.patches import datasets_library

README = """---
configs:
- config_name: main
  default: true
  data_files:
  - split: train
    path: main/train.jsonl
  - split: test
    path: main/test.jsonl
- config_name: other
  data_files:
  - split: test
    path: other/*.jsonl
---
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def hub_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hub is out of reach; an item for every look whether it is not."""
    asked: list[str] = []

    def unreachable(endpoint: str) -> bool:
        asked.append(endpoint)
        return False

    monkeypatch.setattr(datasets_library, "_accepts_connection", unreachable)
    return asked


@pytest.fixture
def hub_folder(tmp_path: Path) -> Path:
    """A data set laid out as on the hub."""
    folder = tmp_path / "data" / "owner" / "Sums"
    write(folder / "README.md", README)
    write_rows(folder / "main" / "train.jsonl", [{"q": "1+1", "a": 2}, {"q": "2+2", "a": 4}])
    write_rows(folder / "main" / "test.jsonl", [{"q": "3+3", "a": 6}])
    write_rows(folder / "other" / "a.jsonl", [{"q": "5+5", "a": 10}])
    write_rows(folder / "other" / "b.jsonl", [{"q": "6+6", "a": 12}])
    return tmp_path / "data"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def load(data_dir: Path | None, *args: Any, **options: Any) -> Any:
    """Load as lm-eval does: by ``datasets.load_dataset``, inside a source."""
    import datasets

    with data_source(str(data_dir) if data_dir else None):
        return datasets.load_dataset(*args, **options)


# -- where data sets are found ----------------------------------------------------------------------------------------


def test_a_folder_laid_out_as_on_the_hub(hub_folder: Path, hub_calls: list[str]) -> None:
    splits = load(hub_folder, path="owner/Sums", name="main")
    assert {split: rows.to_list() for split, rows in splits.items()} == {
        "train": [{"q": "1+1", "a": 2}, {"q": "2+2", "a": 4}],
        "test": [{"q": "3+3", "a": 6}],
    }
    assert load(hub_folder, "owner/Sums")["test"].to_list() == [{"q": "3+3", "a": 6}], "the default config"
    assert load(hub_folder, "owner/Sums", "other", split="test")["a"][:] == [10, 12]
    assert hub_calls == []


def stored_by_datasets(hub_folder: Path, root: Path) -> Path:
    """Put the data set's config `main` where the datasets library caches what it downloads."""
    import datasets

    folder = root / "owner___sums" / "main" / "0.0.0" / "abc"
    builder = datasets.load_dataset_builder(str(hub_folder / "owner" / "Sums"), "main", cache_dir=str(root / "scratch"))
    builder.download_and_prepare(output_dir=str(folder))
    return folder


def test_a_cache_of_the_datasets_library(hub_folder: Path, tmp_path: Path, hub_calls: list[str]) -> None:
    import datasets

    stored = stored_by_datasets(hub_folder, tmp_path / "hf")
    before = sorted(path for path in (tmp_path / "hf").rglob("*"))
    for _ in range(2):
        with data_source(str(tmp_path / "hf")) as source:
            splits = datasets.load_dataset("owner/Sums", "main")
            assert splits["test"].to_list() == [{"q": "3+3", "a": 6}]
            assert splits["train"].filter(lambda row: row["a"] > 2).to_list() == [{"q": "2+2", "a": 4}]
            assert len(datasets.load_dataset("owner/Sums")["train"]) == 2
            with pytest.raises(DataNotFoundError, match=r"owner/Sums/none cannot be found in .*for config 'none'"):
                datasets.load_dataset("owner/Sums", "none")
    assert sorted((tmp_path / "hf").rglob("*")) == before, "it may be read-only"
    assert [file.path for file in source.files["owner/Sums/main"]] == [
        f"owner___sums/main/0.0.0/abc/sums-{split}.arrow" for split in ("test", "train")
    ]
    (stored / "sums-test.arrow").write_bytes(b"damaged")
    with data_source(str(tmp_path / "hf")), pytest.raises(FileFormatError, match=r"cannot be read from owner___sums/"):
        datasets.load_dataset("owner/Sums", "main")
    assert hub_calls == []


def test_the_datasets_librarys_own_cache_stands_in_for_the_hub(
    hub_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    stored_by_datasets(hub_folder, tmp_path / "hf")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    assert load(tmp_path, "owner/Sums", "main")["test"].to_list() == [{"q": "3+3", "a": 6}]


def test_files_that_a_task_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_calls: list[str]) -> None:
    path = write_rows(tmp_path / "mine.jsonl", [{"q": "x"}])
    monkeypatch.chdir(tmp_path)
    for data_files in (str(path), "mine.jsonl", {"train": "mine.jsonl"}, ["mine.jsonl"]):
        assert load(None, path="json", name=None, data_files=data_files)["train"].to_list() == [{"q": "x"}]
    with data_source(None) as source:
        source.load("json", data_files={"test": "mine.jsonl"})
    content = path.read_bytes()
    assert source.files == {
        "json: mine.jsonl": (DataFile(str(path), hashlib.sha256(content).hexdigest(), len(content)),)
    }
    assert hub_calls == []


def test_a_folder_that_a_task_names(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(load(None, str(hub_folder / "owner" / "Sums"), "main")["train"]) == 2
    monkeypatch.chdir(hub_folder)
    assert len(load(None, "owner/Sums", "main")["train"]) == 2


def test_the_hub_is_asked_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hub_folder: Path) -> None:
    import datasets

    asked: list[Any] = []
    real = datasets.load_dataset_builder

    def builder(path: str, name: str | None = None, **options: Any) -> Any:
        asked.append((path, name, options))
        return real(str(hub_folder / "owner" / "Sums"), "main", cache_dir=str(tmp_path / "hub-cache"))

    monkeypatch.setattr(datasets_library, "_accepts_connection", lambda endpoint: True)
    monkeypatch.setattr(datasets, "load_dataset_builder", builder)
    with data_source(str(tmp_path)) as source:
        assert len(datasets.load_dataset("owner/Other", "main", revision="abc", trust_remote_code=True)["train"]) == 2
    assert asked == [("owner/Other", "main", {"revision": "abc"})]
    assert len(source.files["owner/Other/main"]) == 2


def test_load_dataset_is_itself_again_afterwards(hub_folder: Path) -> None:
    import datasets

    original = datasets.load_dataset
    with data_source(str(hub_folder)):
        kept = datasets.load_dataset
        assert kept is not original
    assert datasets.load_dataset is original
    with data_source(str(hub_folder / "owner")):
        # A task's module may have kept the function of an earlier source; it must not serve that source's data.
        assert len(kept("Sums", "main")["train"]) == 2


# -- content decides --------------------------------------------------------------------------------------------------


def test_a_changed_file_is_seen(hub_folder: Path) -> None:
    path = hub_folder / "owner" / "Sums" / "main" / "test.jsonl"
    for answer in (6, 7, 6):
        before = path.stat()
        write_rows(path, [{"q": "3+3", "a": answer}])
        # Same size and same time: only the content tells.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert load(hub_folder, "owner/Sums", "main")["test"]["a"][:] == [answer]


def test_a_changed_file_that_a_task_names_is_seen(tmp_path: Path) -> None:
    for answer in (6, 7):
        path = write_rows(tmp_path / "mine.jsonl", [{"a": answer}])
        assert load(None, "json", data_files=str(path), split="train")["a"][:] == [answer]


def test_an_unchanged_file_is_parsed_once(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datasets.packaged_modules.json.json import Json

    load(hub_folder, "owner/Sums", "main")
    os.utime(hub_folder / "owner" / "Sums" / "main" / "test.jsonl")
    (hub_folder / "owner" / "Sums").rename(hub_folder / "owner" / "moved")
    (hub_folder / "owner" / "moved").rename(hub_folder / "owner" / "Sums")
    monkeypatch.setattr(Json, "_generate_tables", lambda *args: pytest.fail("parsed again"))
    assert len(load(hub_folder, "owner/Sums", "main")["train"]) == 2


def test_hashes_are_remembered_only_for_settled_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "file", "content")
    expected = hashlib.sha256(b"content").hexdigest()
    fresh = FileHashes()
    assert fresh.sha256(str(path)) == expected
    fresh.store()
    assert not (tmp_path / "cache").exists(), "too young to be remembered"
    monkeypatch.setattr("assay.tasks.file_hashes._SETTLED_NS", -1)
    settled = FileHashes()
    assert settled.sha256(str(path)) == expected
    settled.store()
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: pytest.fail("hashed again"))
    assert FileHashes().sha256(str(path)) == expected


def test_rows_kept_in_a_damaged_state_are_made_again(hub_folder: Path, tmp_path: Path) -> None:
    for damage in ("cut", "gone", "info"):
        load(hub_folder, "owner/Sums", "main")
        (train,) = (tmp_path / "cache" / "datasets").rglob("*-train.arrow")
        if damage == "cut":
            train.write_bytes(train.read_bytes()[:100])
        elif damage == "gone":
            train.unlink()
        else:
            (train.parent / "dataset_info.json").write_text("{")
        assert load(hub_folder, "owner/Sums", "main")["train"]["a"][:] == [2, 4], damage


@pytest.mark.slow
def test_two_processes_fill_one_cache(hub_folder: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom assay.tasks.data import data_source\n"
        "with data_source(sys.argv[1]) as source:\n"
        "    print(source.load('owner/Sums', 'main')['train']['a'][:])"
    )
    command = [sys.executable, "-c", code, str(hub_folder)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=120) for process in started] == [("[2, 4]\n", "")] * 3
    assert not list((tmp_path / "cache").rglob("*.incomplete"))


def test_without_a_cache_folder(hub_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a_file", "")
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "a_file" / "cache"))
    assert len(load(hub_folder, "owner/Sums", "main")["train"]) == 2


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_tasks_share_rows_but_not_their_containers(hub_folder: Path) -> None:
    source = DataSource(str(hub_folder))
    first, second = source.load("owner/Sums", "main"), source.load("owner/Sums", "main")
    assert first["train"].data is second["train"].data
    first["train"].set_format("numpy")
    first.pop("test")
    assert second["train"][0] == {"q": "1+1", "a": 2}
    assert set(second) == {"train", "test"}


def test_the_files_of_a_data_set_are_recorded(hub_folder: Path) -> None:
    with data_source(str(hub_folder)) as source:
        source.load("owner/Sums", "main")
        source.load("owner/Sums", "other")
    for label, names in {"owner/Sums/main": ["main/test.jsonl", "main/train.jsonl"], "owner/Sums/other": None}.items():
        for file in source.files[label]:
            content = (hub_folder / file.path).read_bytes()
            assert (file.sha256, file.size) == (hashlib.sha256(content).hexdigest(), len(content))
        if names:
            assert [file.path for file in source.files[label]] == [f"owner/Sums/{name}" for name in names]
    assert len(source.files) == 2


# -- errors -----------------------------------------------------------------------------------------------------------


def refused(kind: type[Exception], data_dir: Path | None, *args: Any, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        load(data_dir, *args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_data_set_that_is_nowhere(hub_folder: Path, tmp_path: Path, hub_calls: list[str]) -> None:
    message = refused(DataNotFoundError, hub_folder, "owner/Else", "main")
    assert message.startswith(
        f"data set owner/Else/main is not in {hub_folder}/owner/Else nor in {hub_folder}/owner___else nor in "
    )
    assert "the Hugging Face hub is out of reach; put it into DIR/owner/Else/ and pass --data-dir DIR" in message
    assert len(hub_calls) == 1


def test_offline_mode_is_respected(monkeypatch: pytest.MonkeyPatch, hub_calls: list[str]) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    assert "out of reach" in refused(DataNotFoundError, None, "owner/Else")
    assert hub_calls == []


def test_a_config_that_is_not_there(hub_folder: Path) -> None:
    message = refused(DataNotFoundError, hub_folder, "owner/Sums", "mian")
    assert "data set owner/Sums/mian cannot be found in" in message
    assert "'mian' not found. Available: ['main', 'other']" in message


def test_a_split_that_is_not_there(hub_folder: Path) -> None:
    splits = load(hub_folder, "owner/Sums", "main")
    with pytest.raises(DataNotFoundError, match=r"owner/Sums/main has no split 'validation' \(it has: train, test\)"):
        splits["validation"]
    assert "Unknown split" in refused(DataNotFoundError, hub_folder, "owner/Sums", "main", split="validation")


def test_files_that_are_not_there(tmp_path: Path) -> None:
    message = refused(DataNotFoundError, None, "json", data_files={"test": str(tmp_path / "nowhere.jsonl")})
    assert message.startswith(f"data set json: {tmp_path}/nowhere.jsonl cannot be found from files: Unable to find")


def test_files_elsewhere_on_the_network(hub_calls: list[str]) -> None:
    message = refused(DataNotFoundError, None, "json", data_files={"test": "https://example.org/x.jsonl"})
    assert message == "data set json: https://example.org/x.jsonl is remote, and the network is out of reach"


@pytest.mark.parametrize("content", [b'{"q": "3+3", "a": 6}\n{"q": "4+4, "a"', b"", b"<html>not found</html>"])
def test_a_damaged_file(hub_folder: Path, content: bytes) -> None:
    (hub_folder / "owner" / "Sums" / "main" / "test.jsonl").write_bytes(content)
    message = refused(FileFormatError, hub_folder, "owner/Sums", "main")
    assert message.startswith("data set owner/Sums/main cannot be read from owner/Sums/main/test.jsonl, ")


def test_a_damaged_parquet_file(tmp_path: Path) -> None:
    write(tmp_path / "owner" / "Table" / "data" / "test-00000-of-00001.parquet", "PAR1 not really")
    assert "Parquet" in refused(FileFormatError, tmp_path, "owner/Table")


def test_data_dir_must_be_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match="is no folder"), data_source(str(tmp_path / "nowhere")):
        pass


def test_nothing_is_printed(hub_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with data_source(str(hub_folder)) as source:
        source.load("owner/Sums", "main")["train"].filter(lambda row: row["a"] > 2)
    refused(DataNotFoundError, hub_folder, "owner/Else")
    write(hub_folder / "owner" / "Sums" / "main" / "test.jsonl", "<html>")
    refused(FileFormatError, hub_folder, "owner/Sums", "main")
    assert capfd.readouterr() == ("", "")


def test_an_unreachable_hub_is_given_up() -> None:
    # A reserved address that swallows connections, or refuses them at once; either way nobody waits for long.
    assert not datasets_library._accepts_connection("https://192.0.2.1")
