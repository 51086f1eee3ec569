"""The index against lm-eval's own, and what happens when files, caches and names are not as expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.errors import SpecificationError, TaskConfigError, UnknownTaskError
from assay.tasks import index as index_module
from assay.tasks.index import TaskIndex, TaskKind, entry_from_file, list_tasks, task_index

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small stand-in for lm-eval's task folder."""
    folder = tmp_path / "lm_eval" / "tasks"
    write(folder / "sums" / "easy.yaml", "task: sums_easy\ntag:\n  - sums\n  - arithmetic\ndataset_path: json\n")
    write(folder / "sums" / "hard.yaml", "include: _common_yaml\ntask: sums_hard\n")
    write(folder / "sums" / "_common_yaml", "tag: sums\noutput_type: multiple_choice\n")
    write(folder / "sums" / "group.yaml", "group: all_sums\ntask:\n  - sums_easy\n  - sums_hard\n")
    monkeypatch.setattr(index_module, "lm_eval_tasks_folder", lambda: folder)
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def theirs(**options: Any) -> dict[str, tuple[str, str | None, tuple[str, ...]]]:
    """lm-eval's own index in comparable form."""
    from lm_eval.tasks import TaskManager

    kinds = {"TASK": "task", "PY_TASK": "python task", "GROUP": "group", "TAG": "tag"}
    return {
        name: (kinds[entry.kind.name], str(entry.yaml_path) if entry.yaml_path else None, tuple(sorted(entry.tags)))
        for name, entry in TaskManager(**options).task_index.items()
    }


def ours(index: TaskIndex) -> dict[str, tuple[str, str | None, tuple[str, ...]]]:
    assert all(name == entry.name for name, entry in index.entries.items())
    return {name: (str(entry.kind), entry.path, entry.tags) for name, entry in index.entries.items()}


# -- the same as lm-eval's --------------------------------------------------------------------------------------------


def test_every_entry_is_lm_evals() -> None:
    # Slow: the real TaskManager parses 14,000 files, which takes about nine seconds.
    expected = theirs()
    assert len(expected) > 14_000
    assert ours(task_index()) == expected
    assert ours(task_index()) == expected, "read from the cache"


def test_a_folder_of_the_users_is_read_as_lm_eval_reads_it(library: Path, tmp_path: Path) -> None:
    user = tmp_path / "user"
    write(user / "a.yaml", "task: sums_easy\ntag: [mine, sums]\n")
    write(user / "b" / "twice.yaml", "task: first\n")
    write(user / "c" / "twice.yaml", "task: first\ntag: lost\n")
    write(user / "python.yaml", "task: pythonic\nclass: !function code.Task\n")
    write(user / "group.yaml", "group: grouped\ntag: mine\ntask: [sums_easy]\n")
    write(user / "template.yaml", "dataset_path: json\n")
    write(user / "named_like_a_tag.yaml", "task: mine\n")
    write(user / "list.yaml", "- task: not_a_task\n")
    write(user / "empty.yaml", "")
    write(user / ".ipynb_checkpoints" / "old.yaml", "task: old\n")
    write(user / "kubernetes.yaml", "kind: Pod\n---\nkind: Service\n")
    write(user / "site.yaml", "emoji: !!python/name:site.emoji\n")
    expected = theirs(include_defaults=False, include_path=str(user))
    assert {"sums_easy", "first", "pythonic", "grouped", "mine", "sums"} == set(expected)
    assert ours(task_index(str(user))) == ours(task_index()) | expected


def test_output_type_and_includes(library: Path) -> None:
    index = task_index()
    assert index.entry("sums_hard").output_type == "multiple_choice"
    assert index.entry("sums_easy").output_type == "generate_until"
    assert index.entry("sums_hard").tags == ("sums",)
    assert index.members("sums") == ("sums_easy", "sums_hard")
    assert index.members("arithmetic") == ("sums_easy",)
    assert index.kind("all_sums") is TaskKind.GROUP


def test_a_file_that_includes_another_twice_is_left_out_as_in_lm_eval(library: Path) -> None:
    write(library / "twice.yaml", "task: twice\ninclude: [sums/_common_yaml, sums/_common_yaml]\n")
    write(library / "dangling.yaml", "task: dangling\ninclude: nowhere_yaml\n")
    expected = theirs(include_defaults=False, include_path=str(library))
    assert "twice" not in expected
    assert ours(task_index()) == expected


# -- names ------------------------------------------------------------------------------------------------------------


def test_patterns(library: Path) -> None:
    index = task_index()
    assert index.match("sums_*") == ["sums_easy", "sums_hard"]
    assert index.match(["*hard", "sums_?a??", "sums_hard"]) == ["sums_easy", "sums_hard"]
    assert index.match("SUMS*") == []


def test_an_unknown_name_is_told_with_its_neighbours(library: Path) -> None:
    with pytest.raises(UnknownTaskError, match=r"^no task, group or tag is called 'sums_esy'; near: sums_easy, "):
        task_index().entry("sums_esy")
    with pytest.raises(UnknownTaskError, match=r"'qqqq'; `assay tasks PATTERN` lists"):
        task_index().kind("qqqq")
    with pytest.raises(UnknownTaskError, match="'all_sums' is a group, not a tag"):
        task_index().members("all_sums")


def test_looking_up_names_imports_nothing_heavy() -> None:
    code = (
        "import sys; from assay.tasks.index import task_index; assert task_index().match('gsm8k*');"
        "print([m for m in ('lm_eval', 'datasets.load', 'numpy', 'pandas', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


# -- the user's files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task: broken\ndoc_to_text: [a, b\n", r"bad\.yaml, line 3: not valid YAML: "),
        ("task: broken\n\tkey: value\n", r"bad\.yaml, line 2: not valid YAML: "),
        ("task: broken\nmetric_list: !func utils.f\n", r"bad\.yaml, line 2: not valid YAML: .*!func"),
        ("task: broken\ninclude: nowhere.yaml\n", r"bad\.yaml: includes 'nowhere\.yaml': No such file"),
        ("task: broken\ninclude: 3\n", r"bad\.yaml: include: expects a path, not 3"),
        ("task: broken\ninclude: bad.yaml\n", r"bad\.yaml: is included twice"),
        ("task: 12\n", r"bad\.yaml: the name of a task is text, not 12"),
        ("task: broken\ntag: {a: b}\n", r"bad\.yaml: tag: expects a name or a list of names"),
        ("task: \x00\n", r"bad\.yaml: not valid YAML: "),
    ],
)
def test_a_fault_in_the_users_folder_is_told(library: Path, tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path / "user" / "bad.yaml", text)
    with pytest.raises(TaskConfigError, match=message) as caught:
        task_index(str(tmp_path / "user"))
    assert "\n" not in str(caught.value)


def test_include_path_must_be_a_folder(library: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match="is no folder"):
        task_index(str(tmp_path / "nowhere"))
    with pytest.raises(SpecificationError, match="is no folder"):
        task_index(str(library / "sums" / "easy.yaml"))


def test_a_task_by_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "own.yaml", "task: own\ntag: mine\n")
    entry = entry_from_file(path)
    assert (entry.name, entry.kind, entry.path, entry.tags) == ("own", TaskKind.TASK, str(path.resolve()), ("mine",))
    assert entry_from_file(write(tmp_path / "g.yaml", "group: g\ntask: [own]\n")).kind is TaskKind.GROUP
    with pytest.raises(TaskConfigError, match="defines no task"):
        entry_from_file(write(tmp_path / "template.yaml", "dataset_path: json\n"))


# -- the cache --------------------------------------------------------------------------------------------------------


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for every scan of a folder."""
    made: list[int] = []
    scan: Callable[..., Any] = index_module._scan

    def counted(*args: Any, **options: Any) -> Any:
        made.append(1)
        return scan(*args, **options)

    monkeypatch.setattr(index_module, "_scan", counted)
    return made


def test_an_unchanged_folder_is_scanned_once(library: Path, scans: list[int]) -> None:
    assert ours(task_index()) == ours(task_index())
    assert len(scans) == 1


def test_a_changed_folder_is_scanned_again(library: Path, scans: list[int]) -> None:
    task_index()
    new = write(library / "sums" / "new.yaml", "task: sums_new\n")
    assert task_index().match("sums_new") == ["sums_new"]
    os.utime(write(new, "task: sums_renamed\n"), ns=(1, 1))
    assert task_index().match("sums_*n*") == ["sums_renamed"]
    new.unlink()
    assert task_index().match("sums_*n*") == []
    assert len(scans) == 4


@pytest.mark.parametrize("damage", ["empty", "garbage", "cut", "one bit"])
def test_a_damaged_cache_file_is_replaced(library: Path, tmp_path: Path, scans: list[int], damage: str) -> None:
    expected = ours(task_index())
    (cached,) = (tmp_path / "cache").iterdir()
    whole = cached.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(b"sums_easy")] ^= 1
    cached.write_bytes(
        {"empty": b"", "garbage": b"garbage", "cut": whole[: len(whole) // 2], "one bit": bytes(flipped)}[damage]
    )
    assert ours(task_index()) == expected
    assert ours(task_index()) == expected
    assert len(scans) == 2


def test_no_cache_is_no_error(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a_file", "")
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path / "a_file" / "cache"))
    assert task_index().match("sums_*") == ["sums_easy", "sums_hard"]


def test_an_unknown_name_may_be_a_task_of_ones_own(library: Path, tmp_path: Path) -> None:
    own = write(tmp_path / "own" / "mine.yaml", "task: mine\n").parent
    for index, says_so in ((task_index(), True), (task_index(str(own)), False)):
        with pytest.raises(UnknownTaskError) as unknown:
            index.entry("sums_esy")
        for error in (index.unmatched("sums_esy"), unknown.value):
            assert "; near: sums_easy" in str(error)
            assert ("--include-path" in str(error)) == says_so


def test_a_plain_word_matches_anywhere_in_a_name(tmp_path: Path) -> None:
    write(tmp_path / "own.yaml", "task: my_quizzes_own\noutput_type: generate_until\n")
    (found,) = list_tasks("quizzes_ow", str(tmp_path))
    assert (found.name, found.kind, found.output_type) == ("my_quizzes_own", TaskKind.TASK, "generate_until")
    assert list_tasks("my_quizzes*", str(tmp_path)) == (found,)
    with pytest.raises(UnknownTaskError):
        list_tasks("?uizzes", str(tmp_path))
