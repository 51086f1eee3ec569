"""Chosen documents: read from text or file, and refused where they could not be meant."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.errors import FileFormatError, SpecificationError
from assay.tasks.selection import chosen_documents, documents_of, parse_samples
from assay.types import TaskOptions

TASKS = {name: SimpleNamespace(eval_docs=list(range(10))) for name in ("one", "two")}


def test_samples_are_read_from_text_or_file(tmp_path: Path) -> None:
    text = '{"one": [0, 5, 7]}'
    (tmp_path / "chosen.json").write_text(text)
    assert parse_samples(text) == parse_samples(str(tmp_path / "chosen.json")) == {"one": (0, 5, 7)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.json", "neither JSON such as .* nor a file: 'nowhere.json'"),
        ("x" * 5000, "nor a file"),
        ("[1]", "must name documents by task"),
        ("{}", "must name documents by task"),
        ("[" * 100_000, "samples is neither JSON"),
        ('{"one": 5}', "samples for 'one' is 5; it must be a list"),
        ('{"one": []}', r"samples for 'one' is \[\]; it must be a list"),
        ('{"one": ["a"]}', "samples for 'one' has 'a'; documents are numbered from 0"),
        ('{"one": [true]}', "samples for 'one' has True"),
        ('{"one": [1.5]}', "samples for 'one' has 1.5"),
    ],
)
def test_what_chooses_no_documents_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        parse_samples(text)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "chosen.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"chosen\.json as JSON"):
        parse_samples(str(tmp_path / "chosen.json"))


def test_documents_are_asked_once_and_in_order() -> None:
    options = TaskOptions(samples={"one": (7, 2, 7)})
    assert chosen_documents(TASKS, options) == {"one": [2, 7], "two": range(10)}


def test_documents_and_tasks_that_are_not_there() -> None:
    with pytest.raises(SpecificationError, match="document 10 of 'one', which has 10: 0 to 9"):
        documents_of("one", TASKS["one"], TaskOptions(samples={"one": (3, 10)}))
    with pytest.raises(SpecificationError, match="documents of 'three', which is none of the tasks to run: one, two"):
        chosen_documents(TASKS, TaskOptions(samples={"three": (3,)}))
