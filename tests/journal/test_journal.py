"""What a run's journal promises while nothing goes wrong on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from assay.errors import JournalError
from assay.journal import (
    Finalised,
    Finished,
    Header,
    Journal,
    Record,
    ResponseRecord,
    check,
    encode_record,
    find_journals,
    index,
    records,
)
from assay.journal.frames import MAGIC, encode_frame
from assay.types import Answer, Failure, FailureCause, Request

if TYPE_CHECKING:
    from pathlib import Path

FINGERPRINT = "0123456789abcdef" * 4
SPECIFICATION: dict[str, Any] = {"tasks": ["gsm8k_cot"], "model": {"model": "m"}}
RESET = Failure(cause=FailureCause.RESET, message="connection reset", status=None, latency=0.5, attempts=8)


def _open(
    folder: Path, *, fresh: bool = False, fingerprint: str = FINGERPRINT, replicas: tuple[str, ...] = ()
) -> Journal:
    return Journal.open(folder, fingerprint=fingerprint, specification=SPECIFICATION, replicas=replicas, fresh=fresh)


def _request(number: int, key: str | None = None) -> Request:
    return Request("gsm8k_cot", number, 0, 0, "generate_until", b"{}", key or f"{number:064x}")


def test_an_answer_is_found_again_in_the_same_session_and_in_the_next(tmp_path: Path) -> None:
    answer = Answer(
        text="#### 18",
        finish_reason="length",
        reasoning="think",
        prompt_tokens=7,
        completion_tokens=9,
        latency=1.5,
        attempts=2,
        model="m-v2",
    )
    with _open(tmp_path) as journal:
        assert (journal.resumed, journal.answers, journal.date_id) == (False, 0, None)
        assert journal.lookup(_request(1).key) is None
        journal.append(_request(1), answer)
        assert journal.lookup(_request(1).key) == answer
    with _open(tmp_path) as resumed:
        assert resumed.path == journal.path
        assert (resumed.resumed, resumed.answers) == (True, 1)
        assert resumed.lookup(_request(1).key) == answer
        assert resumed.lookup(_request(2).key) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        "\x1e00000000 00000000 {}\n",
        "a\nb\x00\u2028\u20ac\U0001f600",
        "lone \ud800 surrogate",
        "\udfff",
        "x" * 3_000_000,
    ],
    ids=["empty", "null", "like a frame", "unicode", "high surrogate", "low surrogate", "3 MB"],
)
def test_any_text_comes_back_as_it_was(tmp_path: Path, text: str | None) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text=text))
        journal.append(_request(2), Answer(text="next"))
    with _open(tmp_path) as journal:
        assert journal.lookup(_request(1).key) == Answer(text=text)
        assert journal.lookup(_request(2).key) == Answer(text="next")


def test_a_failed_request_is_asked_again(tmp_path: Path) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(1), RESET)
    with _open(tmp_path) as journal:
        assert journal.answers == 0
        assert journal.lookup(_request(1).key) is None
        journal.append(_request(1), Answer(text="at last"))
    with _open(tmp_path) as journal:
        assert journal.lookup(_request(1).key) == Answer(text="at last")


def test_the_last_answer_to_a_key_wins_and_no_failure_takes_it_away(tmp_path: Path) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text="first"))
        journal.append(_request(1), Answer(text="second"))
        journal.append(_request(1), RESET)
        assert journal.lookup(_request(1).key) == Answer(text="second")
    with _open(tmp_path) as journal:
        assert journal.answers == 1
        assert journal.lookup(_request(1).key) == Answer(text="second")
    assert check(journal.path).failures == {}


def test_keys_that_share_a_hash_are_never_mistaken_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_hash", lambda key: 7)
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text="one"))
        journal.append(_request(2), Answer(text="two"))
        assert journal.lookup(_request(1).key) is None
        assert journal.lookup(_request(2).key) == Answer(text="two")


def test_records_come_back_in_the_order_of_writing(tmp_path: Path) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(3), Answer(text="x"))
        journal.append(_request(4), RESET)
        journal.finalise("2026-01-02T03-04-05.678")
        journal.finish(failed=1)
    header, answered, failed, finalised, finished = records(journal.path)
    assert isinstance(header, Header)
    assert (header.version, header.fingerprint, header.specification) == (1, FINGERPRINT, SPECIFICATION)
    assert isinstance(answered, ResponseRecord)
    assert (answered.task, answered.doc_id, answered.index, answered.repeat) == ("gsm8k_cot", 3, 0, 0)
    assert (answered.key, answered.response) == (_request(3).key, Answer(text="x"))
    assert isinstance(failed, ResponseRecord)
    assert failed.response == RESET
    assert header.time <= answered.time <= failed.time
    assert isinstance(finalised, Finalised)
    assert finalised.date_id == "2026-01-02T03-04-05.678"
    assert isinstance(finished, Finished)
    assert finished.failed == 1


def test_every_record_can_be_exported_as_one_line_of_json(tmp_path: Path) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text="a\nb \ud800"))
        journal.append(_request(2), RESET)
    for record in records(journal.path):
        line = encode_record(record)
        assert b"\n" not in line
        assert line.decode("utf-8").startswith('{"kind":')


def test_a_run_that_is_finished_for_good_is_never_reused(tmp_path: Path) -> None:
    with _open(tmp_path) as first:
        first.append(_request(1), Answer(text="x"))
        first.finalise("d1")
        first.finish(failed=0)
    with _open(tmp_path) as second:
        assert second.path != first.path
        assert (second.resumed, second.answers, second.date_id) == (False, 0, None)
    assert find_journals(tmp_path) == [first.path, second.path]


def test_a_run_that_finished_with_failures_is_resumed_and_writes_results_of_its_own(tmp_path: Path) -> None:
    with _open(tmp_path) as first:
        first.append(_request(1), Answer(text="x"))
        first.finalise("d1")
        first.finish(failed=2)
    with _open(tmp_path) as second:
        assert second.path == first.path
        assert (second.answers, second.date_id) == (1, None)
        second.finalise("d2")
        second.finish(failed=0)
    with _open(tmp_path) as third:
        assert third.path != first.path


def test_a_run_killed_while_its_results_were_written_keeps_their_time_stamp(tmp_path: Path) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(1), RESET)
        journal.finalise("d1")
    with _open(tmp_path) as journal:
        assert journal.date_id == "d1"
        journal.append(_request(1), Answer(text="x"))
    with _open(tmp_path) as journal:
        assert journal.date_id == "d1"


def test_fresh_starts_a_new_journal_which_supersedes_the_old(tmp_path: Path) -> None:
    with _open(tmp_path) as old:
        old.append(_request(1), Answer(text="old"))
    with _open(tmp_path, fresh=True) as new:
        assert new.path != old.path
        assert (new.resumed, new.answers) == (False, 0)
    with _open(tmp_path) as journal:
        assert journal.path == new.path
        journal.finish(failed=0)
    with _open(tmp_path) as journal:
        assert journal.path not in (old.path, new.path)


def test_a_new_journal_is_the_newest_also_where_the_clock_has_been_set_back(tmp_path: Path) -> None:
    with _open(tmp_path) as old:
        old.finish(failed=0)
    old.path.rename(tmp_path / f"2999-12-31T23-59-59.999999Z_{old.path.name.partition('_')[2]}")
    (tmp_path / "someone else's.journal").touch()
    with _open(tmp_path) as new:
        new.append(_request(1), Answer(text="x"))
    assert new.path.name.startswith("3000-01-01T00-00-00.000000Z_")
    with _open(tmp_path) as again:
        assert (again.path, again.answers) == (new.path, 1)


def test_another_fingerprint_has_a_journal_of_its_own(tmp_path: Path) -> None:
    other = "f" * 64
    same_file_name = FINGERPRINT[:12] + "f" * 52
    with _open(tmp_path) as journal, _open(tmp_path, fingerprint=other) as second:
        journal.append(_request(1), Answer(text="x"))
        assert second.answers == 0
    with _open(tmp_path, fingerprint=same_file_name) as third:
        assert not third.resumed
    assert len(set(find_journals(tmp_path))) == 3
    assert find_journals(tmp_path, other) == [second.path]
    with _open(tmp_path) as again:
        assert again.path == journal.path


def test_any_fingerprint_that_a_run_has_had_finds_its_journal(tmp_path: Path) -> None:
    a, b, c, d = ("abcd"[place] * 64 for place in range(4))
    with _open(tmp_path, fingerprint=a) as begun:
        for number in range(2000):
            begun.append(_request(number), Answer(text='{"kind":"header","fingerprint":"' + d + '"}' + "x" * 1000))
    with _open(tmp_path, fingerprint=a, replicas=(b,)) as more:
        assert more.path == begun.path
    with _open(tmp_path, fingerprint=c, replicas=(b,)) as exchanged:
        assert (exchanged.path, exchanged.answers) == (begun.path, 2000)
    with _open(tmp_path, fingerprint=c) as left:
        assert left.path == begun.path
    with _open(tmp_path, fingerprint=d) as other:
        assert other.path != begun.path


def test_what_else_lies_in_the_folder_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "2026_aaaaaaaaaaaa.journal").write_bytes(b"no journal")
    later = Header(version=99, fingerprint="e" * 64, specification={}, assay="9", time=0.0)
    (tmp_path / "2026_eeeeeeeeeeee.journal").write_bytes(MAGIC + encode_frame(encode_record(later)))
    (tmp_path / "2026_bbbbbbbbbbbb.journal").mkdir()
    with _open(tmp_path) as journal:
        assert journal.path.name.endswith(f"_{FINGERPRINT[:12]}.journal")


def test_check_reports_what_a_journal_holds(tmp_path: Path) -> None:
    timed_out = msgspec.structs.replace(RESET, cause=FailureCause.TIMED_OUT)
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text="x"))
        for number in (2, 3, 4):
            journal.append(_request(number), RESET)
        journal.append(_request(2), timed_out)
        journal.append(_request(3), Answer(text="y"))
        report = check(journal.path)
        assert (report.finished, report.failed, report.date_id) == (False, None, None)
        journal.finalise("d")
        assert check(journal.path).date_id == "d"
        journal.finish(failed=2)
    report = check(journal.path)
    assert (report.records, report.responses, report.answers, report.unknown) == (9, 6, 2, 0)
    assert report.failures == {FailureCause.TIMED_OUT: 1, FailureCause.RESET: 1}
    assert (report.damaged, report.torn) == ((), None)
    assert (report.finished, report.failed, report.date_id) == (True, 2, None)
    assert report.header is not None
    assert report.header.fingerprint == FINGERPRINT
    assert report.size == journal.path.stat().st_size


def test_reading_neither_needs_the_lock_nor_changes_the_file(tmp_path: Path) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text="x"))
        before = journal.path.read_bytes()
        assert _texts(list(records(journal.path))) == ["x"]
        assert check(journal.path).answers == 1
        assert journal.path.read_bytes() == before


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    with _open(tmp_path) as journal:
        journal.append(_request(1), Answer(text="x"))
    journal.close()
    with pytest.raises(JournalError, match="closed"):
        journal.append(_request(2), Answer(text="y"))
    with pytest.raises(JournalError, match="closed"):
        journal.lookup(_request(1).key)


def test_the_index_answers_as_a_dict_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_MIN_MERGE", 5)
    subject, model = index.OffsetIndex(), dict[str, int]()
    for offset in range(1000):
        key = str(offset * 7919 % 613)
        assert subject.get(key) == model.get(key)
        subject.put(key, offset)
        model[key] = offset
        if offset % 250 == 0:
            assert len(subject) == len(model)
    assert {key: subject.get(key) for key in model} == model
    assert len(subject) == len(model)


def _texts(found: list[Record]) -> list[str | None]:
    return [
        record.response.text
        for record in found
        if isinstance(record, ResponseRecord) and isinstance(record.response, Answer)
    ]
