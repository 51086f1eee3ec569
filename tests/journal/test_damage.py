"""Whatever happens to a journal's bytes, only the records that they belonged to are lost, and none is ever wrong."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import JournalError, JournalVersionError
from assay.journal import Header, Journal, Record, ResponseRecord, check, frames, records
from assay.journal.frames import MAGIC, Frame, encode_frame, scan
from assay.journal.records import decode_record, encode_record
from assay.types import Answer, Failure, FailureCause, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FINGERPRINT = "0123456789abcdef" * 4

answers = st.builds(
    Answer,
    text=st.none() | st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80),
    finish_reason=st.sampled_from([None, "stop", "length"]),
    prompt_tokens=st.none() | st.integers(0, 2**40),
    latency=st.floats(0, 1e6),
)
failures = st.builds(Failure, cause=st.sampled_from(list(FailureCause)), message=st.text(max_size=40))
appends = st.lists(st.tuples(st.integers(0, 5), answers | failures), max_size=8)
places = st.floats(0, 1, exclude_max=True)
"""A place in a file, as a fraction of its size."""
chunks = st.sampled_from([1, 50, 300, 2**20])


def _request(number: int) -> Request:
    return Request("task", number, 0, 0, "generate_until", b"{}", f"{number:032x}")


def _open(folder: Path) -> Journal:
    return Journal.open(folder, fingerprint=FINGERPRINT, specification={"tasks": ["task"]})


def _write(folder: Path, responses: Sequence[tuple[int, Response]]) -> Path:
    with _open(folder) as journal:
        for number, response in responses:
            journal.append(_request(number), response)
    return journal.path


def _frames(path: Path) -> list[tuple[Frame, Record]]:
    with path.open("rb") as file:
        found = [item for item in scan(file.fileno(), path.stat().st_size) if isinstance(item, Frame)]
    decoded = [decode_record(frame.payload) for frame in found]
    return [(frame, record) for frame, record in zip(found, decoded, strict=True) if record is not None]


def _last_answers(found: Sequence[Record]) -> dict[str, Answer]:
    return {
        record.key: record.response
        for record in found
        if isinstance(record, ResponseRecord) and isinstance(record.response, Answer)
    }


def _assert_survivors(path: Path, survivors: Sequence[Record]) -> None:
    """Reading, checking and resuming all find exactly these records, and what is then appended is found as well."""
    assert list(records(path)) == survivors
    expected = _last_answers(survivors)
    report = check(path)
    assert (report.records, report.answers) == (len(survivors), len(expected))
    with _open(path.parent) as journal:
        assert journal.path == path
        assert journal.answers == len(expected)
        assert journal.resumed == bool(survivors)
        assert {n: journal.lookup(_request(n).key) for n in range(6)} == {
            n: expected.get(_request(n).key) for n in range(6)
        }
        journal.append(_request(99), Answer(text="appended after the damage"))
    *earlier, header, appended = records(path)
    assert earlier == survivors
    assert isinstance(header, Header)
    assert isinstance(appended, ResponseRecord)
    assert appended.response == Answer(text="appended after the damage")
    assert check(path).torn is None


@settings(max_examples=60, deadline=None)
@given(written=appends, cut=places, chunk=chunks)
def test_a_cut_anywhere_loses_only_what_came_after_it(
    written: list[tuple[int, Response]], cut: float, chunk: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(frames, "_CHUNK", chunk):
        path = _write(Path(folder), written)
        pristine = _frames(path)
        size = int(cut * path.stat().st_size)
        os.truncate(path, size)
        _assert_survivors(path, [record for frame, record in pristine if frame.end <= size])


@settings(max_examples=150, deadline=None)
@given(written=appends, place=places, change=st.integers(1, 255), chunk=chunks)
def test_a_flipped_byte_loses_only_the_record_it_lies_in(
    written: list[tuple[int, Response]], place: float, change: int, chunk: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(frames, "_CHUNK", chunk):
        path = _write(Path(folder), written)
        pristine = _frames(path)
        content = bytearray(path.read_bytes())
        offset = int(place * len(content))
        content[offset] ^= change
        path.write_bytes(content)
        _assert_survivors(path, [record for frame, record in pristine if not frame.offset <= offset < frame.end])


@settings(max_examples=100, deadline=None)
@given(written=appends, ends=st.tuples(places, places), garbage=st.binary(max_size=60), chunk=chunks)
def test_garbage_in_place_of_a_stretch_loses_only_the_records_it_touches(
    written: list[tuple[int, Response]], ends: tuple[float, float], garbage: bytes, chunk: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(frames, "_CHUNK", chunk):
        path = _write(Path(folder), written)
        pristine = _frames(path)
        content = path.read_bytes()
        begin, end = sorted(int(place * len(content)) for place in ends)
        path.write_bytes(content[:begin] + garbage + content[end:])
        untouched = [record for frame, record in pristine if frame.end <= begin or frame.offset >= end]
        try:
            found = list(records(path))
        except JournalError:
            assert not untouched
            return
        # Garbage may happen to equal what it replaced, so more than the untouched records may be whole.
        assert _is_subsequence(untouched, found)
        assert _is_subsequence(found, [record for _, record in pristine])


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet=st.sampled_from('\ud800\udbff\udc00\udfff\\u"n\x1e\n\x00a\u20ac\U0001f600'), max_size=12))
def test_no_mixture_of_escapes_and_lone_surrogates_comes_back_changed(text: str) -> None:
    record = ResponseRecord(
        task="t", doc_id=0, index=0, repeat=0, key="0", response=Answer(text=text, reasoning=text), time=1.0
    )
    # A high surrogate followed by a low one is JSON's spelling of one character, and comes back as that.
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    decoded = decode_record(encode_record(record))
    assert isinstance(decoded, ResponseRecord)
    assert decoded.response == Answer(text=paired, reasoning=paired)


def _is_subsequence(part: Sequence[Record], whole: Sequence[Record]) -> bool:
    remaining = iter(whole)
    return all(any(item == other for other in remaining) for item in part)


def test_a_tail_torn_at_every_single_byte_is_cut_off_for_writing_only(tmp_path: Path) -> None:
    path = _write(tmp_path, [(0, Answer(text="a\u20ac")), (1, Answer(text="b"))])
    content, pristine = path.read_bytes(), _frames(path)
    for size in range(len(content)):
        path.write_bytes(content[:size])
        survivors = [record for frame, record in pristine if frame.end <= size]
        whole = max([len(MAGIC) if size >= len(MAGIC) else 0, *(f.end for f, _ in pristine if f.end <= size)])
        report = check(path)
        assert (report.torn.length if report.torn else 0) == size - whole
        assert report.damaged == ()
        assert path.stat().st_size == size
        with _open(tmp_path) as journal:
            assert journal.answers == len(_last_answers(survivors))
        assert list(records(path))[:-1] == survivors


@pytest.mark.parametrize("flipped", ["head", "payload", "line feed"])
def test_damage_is_reported_with_its_place(tmp_path: Path, flipped: str, caplog: pytest.LogCaptureFixture) -> None:
    path = _write(tmp_path, [(number, Answer(text=f"answer {number}")) for number in range(5)])
    target = _frames(path)[3][0]
    offset = {"head": target.offset + 4, "payload": target.offset + 60, "line feed": target.end - 1}[flipped]
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x55
    path.write_bytes(content)
    report = check(path)
    assert [(region.offset, region.length) for region in report.damaged] == [
        (target.offset, target.end - target.offset)
    ]
    assert report.torn is None
    with _open(tmp_path) as journal:
        assert journal.lookup(_request(2).key) is None
        assert journal.lookup(_request(3).key) == Answer(text="answer 3")
    assert "is damaged in 1 places" in caplog.text
    assert path.read_bytes()[: len(content)] == content


def test_a_torn_tail_is_cut_off_whole_and_mentioned_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = _write(tmp_path, [(0, Answer(text="longer than the header that follows " * 100))])
    os.truncate(path, path.stat().st_size - 5)
    with _open(tmp_path):
        pass
    report = check(path)
    assert (report.records, report.damaged, report.torn) == (2, (), None)
    assert "torn" in caplog.text
    assert str(path) in caplog.text


def test_a_damaged_header_does_not_cost_the_answers(tmp_path: Path) -> None:
    path = _write(tmp_path, [(0, Answer(text="a"))])
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    content[len(MAGIC) + 30] ^= 1
    path.write_bytes(content)
    assert check(path).header is None
    with _open(tmp_path) as journal:
        assert journal.path == path
        assert journal.lookup(_request(0).key) == Answer(text="a")
    report = check(path)
    assert report.header is not None
    assert report.header.fingerprint == FINGERPRINT


def test_an_answer_damaged_after_opening_is_not_believed(tmp_path: Path) -> None:
    _write(tmp_path, [(0, Answer(text="the right answer"))])
    with _open(tmp_path) as journal:
        content = journal.path.read_bytes()
        with journal.path.open("r+b") as file:
            file.seek(content.index(b"right"))
            file.write(b"wrong")
        assert journal.lookup(_request(0).key) is None


@pytest.mark.parametrize(
    ("claim", "size"),
    [(b"ffffffff", 0), (b"02000000", 30 * 2**20), (b"04000001", 80 * 2**20)],
    ids=["absurd", "past the end of the file", "longer than any record"],
)
def test_an_absurd_length_is_neither_believed_nor_allocated(
    tmp_path: Path, claim: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _write(tmp_path, [(0, Answer(text="a")), (1, Answer(text="b")), (2, Answer(text="c"))])
    pristine = _frames(path)
    content = bytearray(path.read_bytes())
    target = pristine[2][0]
    content[target.offset + 1 : target.offset + 9] = claim
    path.write_bytes(content)
    os.truncate(path, max(size, len(content)))
    asked = []
    pread = os.pread

    def watched(fd: int, length: int, offset: int) -> bytes:
        asked.append(length)
        return pread(fd, length, offset)

    monkeypatch.setattr(os, "pread", watched)
    assert list(records(path)) == [record for frame, record in pristine if frame != target]
    assert max(asked) <= 2**20


def test_a_response_too_long_for_a_frame_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MAX_PAYLOAD", 1000)
    with _open(tmp_path) as journal:
        with pytest.raises(JournalError, match="too long"):
            journal.append(_request(0), Answer(text="x" * 1000))
        journal.append(_request(1), Answer(text="short"))
    assert check(journal.path).answers == 1
    assert check(journal.path).damaged == ()


def test_an_empty_file_is_a_journal_without_records(tmp_path: Path) -> None:
    path = _write(tmp_path, [])
    os.truncate(path, 0)
    assert list(records(path)) == []
    _assert_survivors(path, [])


@pytest.mark.parametrize("read", [lambda path: list(records(path)), check, lambda path: _open(path.parent)])
@pytest.mark.parametrize(
    "content", [b"PK\x03\x04" + bytes(200), b"assay-journey\n", b'{"results": {}}\n', b"\x1e" * 500]
)
def test_a_file_that_is_no_journal_is_refused_and_left_alone(
    tmp_path: Path, read: Callable[[Path], object], content: bytes
) -> None:
    path = _write(tmp_path, [])
    path.write_bytes(content)
    with pytest.raises(JournalError, match="is not a journal"):
        read(path)
    assert path.read_bytes() == content


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"nowhere\.journal: No such file"):
        check(tmp_path / "nowhere.journal")


@pytest.mark.parametrize("read", [lambda path: list(records(path)), check, lambda path: _open(path.parent)])
@pytest.mark.parametrize(
    ("header", "first"),
    [
        (b'{"kind":"header","version":2,"fingerprint":"%b","specification":{},"assay":"9","time":1.0}', True),
        (b'{"kind":"header","version":2,"who":"%b"}', True),
        (b'{"kind":"header","version":2,"who":"%b"}', False),
    ],
    ids=["same fields", "other fields", "resumed by a newer Assay"],
)
def test_a_later_schema_version_is_refused_with_both_versions(
    tmp_path: Path, read: Callable[[Path], object], header: bytes, first: bool
) -> None:
    path = _write(tmp_path, [(0, Answer(text="a"))])
    content = path.read_bytes() if not first else MAGIC
    content += encode_frame(header % FINGERPRINT.encode())
    path.write_bytes(content)
    with pytest.raises(JournalVersionError, match=r"schema version 2, .* up to version 1: upgrade") as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "payload",
    [
        b'{"kind":"remark","text":"from a later 1.x"}',
        b'{"kind":"response","task":"t","response":{"type":"partial"}}',
        b'{"kind":"header"}',
        b'"just a string"',
        b"not JSON at all",
        b"",
    ],
)
def test_records_of_unknown_kinds_are_skipped_and_kept(tmp_path: Path, payload: bytes) -> None:
    path = _write(tmp_path, [(0, Answer(text="a"))])
    with path.open("ab") as file:
        file.write(encode_frame(payload))
    content = path.read_bytes()
    with _open(tmp_path) as journal:
        assert journal.answers == 1
    report = check(path)
    assert (report.unknown, report.records, report.answers, report.torn) == (1, 4, 1, None)
    assert len(list(records(path))) == 3
    assert path.read_bytes().startswith(content)


def test_unknown_fields_are_ignored(tmp_path: Path) -> None:
    path = _write(tmp_path, [(0, Answer(text="a"))])
    payload = _frames(path)[1][0].payload
    with path.open("ab") as file:
        file.write(encode_frame(payload.replace(b'"doc_id":0', b'"colour":"red","doc_id":4')))
    assert [record.doc_id for record in records(path) if isinstance(record, ResponseRecord)] == [0, 4]


@pytest.mark.parametrize("stamp", ["/../../x", "..", "a/b", "", "x\n", "x" * 300, "a\0b", ".hidden"])
def test_a_time_stamp_that_is_no_part_of_a_file_name_is_not_taken_over(tmp_path: Path, stamp: str) -> None:
    with Journal.open(tmp_path, fingerprint="0" * 64, specification={}) as journal:
        path = journal.path
    payload = json.dumps({"kind": "finalised", "date_id": stamp, "time": 0.0}).encode()
    with path.open("ab") as file:
        file.write(encode_frame(payload))
    assert (check(path).date_id, check(path).unknown) == (None, 1)
    with Journal.open(tmp_path, fingerprint="0" * 64, specification={}) as again:
        assert again.date_id is None


def test_a_record_that_is_nested_too_deeply_is_of_an_unknown_kind(tmp_path: Path) -> None:
    with Journal.open(tmp_path, fingerprint="0" * 64, specification={}) as journal:
        path = journal.path
    deep = b"[" * 200_000 + b"]" * 200_000
    with path.open("ab") as file:
        file.write(encode_frame(b'{"kind":"probed","report":{"a":' + deep + b'},"time":0.0}'))
        file.write(encode_frame(b'{"kind":"finished","failed":0,"time":0.0}'))
    assert (check(path).unknown, check(path).finished) == (1, True)
