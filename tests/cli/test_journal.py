"""``assay journal`` on journals that are whole, unfinished, damaged, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.journal import Journal, encode_record, find_journals, records
from assay.types import Answer, Failure, FailureCause, Request, Response

SPECIFICATION = {
    "tasks": ["counting", "naming"],
    "model": {"model": "m\x1b[31m", "base_url": "http://127.0.0.1:8000", "endpoint": "chat"},
}


def ask(task: str, doc_id: int) -> Request:
    key = f"{task}-{doc_id}"
    return Request(task=task, doc_id=doc_id, index=0, repeat=0, kind="generate_until", payload=b"{}", key=key)


def say(text: str, finish_reason: str = "stop") -> Answer:
    return Answer(text=text, finish_reason=finish_reason, prompt_tokens=1000, completion_tokens=7)


def refuse(message: str) -> Failure:
    return Failure(cause=FailureCause.BAD_REQUEST, message=message, status=400)


def write(
    folder: Path, responses: list[tuple[str, int, Response]], *, finished: bool = False, fingerprint: str = "ab" * 32
) -> Path:
    with Journal.open(folder, fingerprint=fingerprint, specification=SPECIFICATION) as journal:
        for task, doc_id, response in responses:
            journal.append(ask(task, doc_id), response)
        if finished:
            journal.finalise("2026-01-01T00-00-00")
            journal.finish(failed=sum(isinstance(response, Failure) for _, _, response in responses))
    return journal.path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["journal", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def rows(shown: str) -> dict[str, str]:
    """The labelled lines of what ``show`` prints."""
    return {line[2:12].strip(): line[12:] for line in shown.splitlines() if line.startswith("  ") and line[2] != " "}


def test_show_tells_what_was_asked_and_how_far_it_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [("counting", 0, say("8")), ("counting", 1, refuse("too \x1b[2J long"))])
    path = write(tmp_path, [("counting", 1, refuse("again")), ("naming", 0, say("9", "length"))])
    code, out, err = run(capsys, "show", path)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    shown = rows(out)
    assert shown["run"].startswith("abababababab, written by Assay")
    assert shown["asked"] == r"counting, naming of m\x1b[31m at http://127.0.0.1:8000 (chat)"
    assert shown["begun"].endswith("resumed once")
    assert shown["state"].startswith("under way, or interrupted")
    assert shown["answers"] == (
        "2 (counting 1, naming 1); ended by stop 1, length 1; 2,000 prompt and 14 completion tokens"
    )
    assert shown["failures"] == "1 bad_request"
    assert "counting 1: bad_request: again" in out
    assert shown["damage"] == "none"


def test_an_answer_takes_an_earlier_failure_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, [("counting", 1, refuse("busy")), ("counting", 1, say("8"))])
    _, out, _ = run(capsys, "show", path)
    assert rows(out)["failures"] == "none"
    assert "busy" not in out


@pytest.mark.parametrize(
    ("response", "state"), [(say("8"), "finished"), (refuse("no"), "finished, 1 samples failed; the same command")]
)
def test_show_a_finished_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], response: Response, state: str
) -> None:
    path = write(tmp_path, [("counting", 0, response)], finished=True)
    _, out, _ = run(capsys, "show", path)
    assert rows(out)["state"].startswith(state)


def test_show_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = [("counting", number, refuse(f"no {number}")) for number in range(9)]
    path = write(tmp_path, [*many, ("naming", 0, say("9"))])
    _, out, _ = run(capsys, "show", path)
    assert "no 4" in out
    assert "no 5" not in out
    assert "and 4 more" in out
    _, out, _ = run(capsys, "show", path, "--json")
    document: dict[str, Any] = json.loads(out)
    assert document["report"]["answers"] == 1
    assert document["tasks"]["counting"]["failures"] == 9
    assert [failed["message"] for failed in document["failures"]] == [f"no {number}" for number in range(9)]


@pytest.mark.parametrize("below", ["out", "out/model", "out/model/journal"])
def test_a_folder_stands_for_the_journals_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str], below: str) -> None:
    folder = tmp_path / "out" / "model" / "journal"
    write(folder, [("counting", 0, say("8"))], finished=True)
    write(folder, [("counting", 0, say("8"))], fingerprint="cd" * 32)
    code, out, _ = run(capsys, "show", tmp_path / below)
    assert code == 0
    assert [line for line in out.splitlines() if line.endswith(".journal")] == [str(p) for p in find_journals(folder)]
    code, _, err = run(capsys, "export", tmp_path / below)
    assert code == 2
    assert "holds 2 journals; name one of" in err


def test_check_a_whole_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, [("counting", 0, say("8"))])
    assert run(capsys, "check", tmp_path) == (0, f"{path}: whole, 2 records\n", "")


def test_check_finds_damage_and_a_torn_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, [("counting", number, say("same length")) for number in range(3)])
    content = bytearray(path.read_bytes())
    starts = [place for place, byte in enumerate(content) if byte == 0x1E]
    content[starts[1] + 30] ^= 1
    path.write_bytes(content[:-5])
    code, out, _ = run(capsys, "check", path)
    assert code == 1
    assert out.splitlines() == [
        f"{path}: damaged, 2 records",
        f"  {starts[2] - starts[1]} bytes at {starts[1]} belong to no record",
        f"  torn end: {len(content) - 5 - starts[3]} bytes at {starts[3]}; the next start cuts them off",
    ]
    code, shown, _ = run(capsys, "show", path)
    assert code == 0
    assert "belong to no record" in rows(shown)["damage"]
    code, exported, err = run(capsys, "export", path)
    assert code == 0
    assert [json.loads(line)["kind"] for line in exported.splitlines()] == ["header", "response"]
    assert err.count("left out: ") == 2


def test_a_damaged_header_is_no_obstacle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, [("counting", 0, say("8"))])
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    path.write_bytes(content)
    code, out, _ = run(capsys, "show", path)
    assert code == 0
    assert rows(out)["run"] == "no record says which"
    assert rows(out)["asked"] == "?"
    assert run(capsys, "check", path)[0] == 1


def test_export_gives_every_record_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, [("counting", 0, say("äh\n\x1b\x1e")), ("naming", 0, refuse("no"))], finished=True)
    code, out, err = run(capsys, "export", tmp_path)
    assert (code, err) == (0, "")
    assert out.encode().splitlines() == [encode_record(record) for record in records(path)]
    assert [json.loads(line)["kind"] for line in out.splitlines()] == [
        "header",
        "response",
        "response",
        "finalised",
        "finished",
    ]


@pytest.mark.parametrize("command", ["show", "check", "export"])
def test_what_is_no_journal_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    other = tmp_path / "notes.journal"
    other.write_text("Dear diary")
    for path, message in [
        (other, "is not a journal of Assay"),
        (tmp_path / "gone.journal", "cannot open the journal"),
        (tmp_path / "folder", "there is no journal in"),
    ]:
        (tmp_path / "folder").mkdir(exist_ok=True)
        code, out, err = run(capsys, command, path)
        assert (code, out) == (2, "")
        assert message in err
        assert "move it" not in err, "nobody writes there"
        assert err.count("\n") == 1
