"""What a journal holds, in figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.errors import JournalError
from assay.journal import FailedRequest, Journal, TaskSummary, journals_at, summarise
from assay.types import Answer, Failure, FailureCause, Request, Response


def respond(journal: Journal, task: str, doc_id: int, response: Response) -> None:
    journal.append(Request(task, doc_id, 0, 0, "generate_until", b"{}", f"{task}-{doc_id}"), response)


def test_answers_tokens_and_failures_are_counted_by_task(tmp_path: Path) -> None:
    lost = Failure(cause=FailureCause.RESET, message="gone")
    with Journal.open(tmp_path, fingerprint="f" * 64, specification={"tasks": ["a", "b"]}) as journal:
        respond(journal, "a", 0, lost)
        respond(journal, "a", 0, Answer(text="x", finish_reason="stop", prompt_tokens=3, completion_tokens=2))
        respond(journal, "b", 1, lost)
        file = journal.path
    found = summarise(file)
    assert found.tasks == {
        "a": TaskSummary(answers=1, prompt_tokens=3, completion_tokens=2),
        "b": TaskSummary(failures=1),
    }
    assert found.failures == (FailedRequest("b", 1, FailureCause.RESET, "gone"),)
    assert (found.finish_reasons, found.starts) == ({"stop": 1}, 1)
    assert found.report.is_whole
    file.write_bytes(file.read_bytes()[:-1])
    assert not summarise(file).report.is_whole


def test_a_folder_stands_for_the_journals_in_it(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "model" / "journal", fingerprint="f" * 64, specification={}) as journal:
        file = journal.path
    for place in (tmp_path, tmp_path / "model", tmp_path / "model" / "journal", file):
        assert journals_at(place) == [file]
    (tmp_path / "empty").mkdir()
    with pytest.raises(JournalError, match="there is no journal in"):
        journals_at(tmp_path / "empty")
