"""Whatever a run's files say, each command that reads them ends with a result or one line, and writes nowhere else."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from assay.cli import main
from assay.errors import FileFormatError
from assay.evaluation import evaluate
from assay.journal.frames import MAGIC, encode_frame
from assay.runs.files import read_run
from assay.runs.saving import save_baseline
from tests.evaluation.test_flow import TASKS, answer, specification
from tests.servers.scripted import ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

POLICY = """
alpha = 0.01
[models.m]
base_url = "http://127.0.0.1:9/v1"
model = "scripted"
[options]
include_path = "{tasks}"
[[checks]]
task = "counting"
metric = "exact_match,get-answer"
baseline = "baseline.json"
margin = 0.02
"""
ROUNDS = 60
"""Damaged copies of each file. `python -m benchmarks.chaos` is for more."""
ODD_VALUES: list[Any] = [
    *(None, True, -1, 2**64, 10**400, float("nan"), float("inf"), 1e308, "", "/../../x", "..", "a\0b", "n" * 300),
    *("a\nb", "\ud800", "\x1b[31m", "9" * 5000, [], {}, [None], {"a": 1}),
]
ODD_BYTES = [
    b"\0" * 100,
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"NaN",
    b"9" * 6000,
    b"\x1e",
]
READERS = {
    "results": (
        "show {run}",
        "compare {run} {whole}",
        "baseline save {run} {out}",
        "triage {run}",
        "report {run} -o {out}",
    ),
    "samples": (
        "show {run} counting 3",
        "compare {whole} {run} --json",
        "baseline save {run} {out}",
        "triage --json {run}",
    ),
    "journal": (
        "journal show {file}",
        "journal show --json {file}",
        "journal check {file}",
        "journal export {file}",
        "show {run}",
    ),
    "baseline": ("compare {file} {whole}", "gate {policy} --explain"),
    "policy": ("gate {policy} --explain",),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, a baseline of it and a policy."""
    folder = tmp_path_factory.mktemp("whole")
    with ScriptedServer(answer=answer, models=["scripted"]) as server:
        evaluate(msgspec.structs.replace(specification(server, folder), probe=False))
    save_baseline(folder / "scripted", folder / "baseline.json", with_texts=True)
    (folder / "policy.toml").write_text(POLICY.format(tasks=TASKS))
    return folder


def file_of(folder: Path, kind: str) -> Path:
    patterns = {"results": "*/results_*", "samples": "*/samples_counting_*", "journal": "*/journal/*"}
    return next(folder.glob(patterns.get(kind, f"{kind}.*")))


def in_bytes(content: bytes, rng: random.Random) -> bytes:
    first, last = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    match rng.randrange(5):
        case 0:
            flipped = bytearray(content)
            flipped[first % len(content)] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case 1:
            return content[:first]
        case 2:
            return content[:first] + content[last:]
        case 3:
            return content[:first] + rng.choice(ODD_BYTES) + content[first:]
        case _:
            return rng.choice([b"", b"null", b"[]", b"{}", *ODD_BYTES, content * 2])


def in_values(document: Any, rng: random.Random) -> Any:
    """One value, anywhere in the document, made odd, left out or doubled."""
    places = [*_places(document)]
    if not places:
        return rng.choice(ODD_VALUES)
    holder, key = rng.choice(places)
    match rng.randrange(4):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case _:
            holder[key] = rng.choice(ODD_VALUES)
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def in_lines(content: bytes, rng: random.Random, damaged: Callable[[bytes], bytes]) -> bytes:
    lines = content.splitlines()
    number = rng.randrange(len(lines))
    lines[number] = damaged(lines[number])
    return b"\n".join(lines) + b"\n"


def damage(kind: str, content: bytes, rng: random.Random) -> bytes:
    def value(text: bytes) -> bytes:
        return json.dumps(in_values(json.loads(text), rng)).encode()

    if rng.random() < 0.4:
        return in_bytes(content, rng)
    if kind == "samples":
        return in_lines(content, rng, value)
    if kind == "journal":
        frames = content.removeprefix(MAGIC)
        return MAGIC + in_lines(frames, rng, lambda frame: encode_frame(value(frame[19:])).rstrip(b"\n"))
    if kind == "policy":
        odd = [b"-1", b"nan", b"1e400", b"9" * 6000, b"[" * 5000, b"{a=1}", b'"\\u0000"', b'"/../x"', b"1979-05-27"]
        return in_lines(content, rng, lambda line: line.partition(b"=")[0] + b"= " + rng.choice(odd))
    return value(content)


@pytest.mark.parametrize("kind", READERS)
def test_damaged_files_are_read_or_refused_in_one_line(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    rng = random.Random(kind)
    copy = tmp_path / "deep" / "er" / "copy"
    out = tmp_path / "out"
    shutil.copytree(whole, copy)
    file = file_of(copy, kind)
    content = file.read_bytes()
    names = {"run": copy / "scripted", "whole": whole / "scripted", "policy": copy / "policy.toml"}
    for number in range(ROUNDS):
        file.write_bytes(damage(kind, content, rng))
        command = rng.choice(READERS[kind]).format(file=file, out=out, **names)
        with pytest.raises(SystemExit) as ended:
            main(command.split())
        told = capsys.readouterr().err
        assert ended.value.code in (0, 1, 2, 3, 4), (kind, number, command, told)
        assert ended.value.code != 2 or told.count("\n") == 1, (kind, number, command, told)
    assert {path.name for path in tmp_path.iterdir()} <= {"deep", "out"}


@pytest.mark.parametrize("seconds", [1e300, -1e300, 253402300800.0, float("nan")])
def test_a_journal_of_an_impossible_time_is_shown(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], seconds: float
) -> None:
    header, *_ = file_of(whole, "journal").read_bytes().removeprefix(MAGIC).splitlines()
    record = json.loads(header[19:]) | {"time": seconds, "assay": "\ud800"}
    record["specification"]["tasks"] = 7
    file = tmp_path / "x.journal"
    file.write_bytes(MAGIC + encode_frame(json.dumps(record).encode()))
    with pytest.raises(SystemExit) as ended:
        main(["journal", "show", str(file)])
    assert ended.value.code == 0
    assert ("impossible time" in capsys.readouterr().out) == (seconds != 253402300800.0)


def deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("policy", b"x = " + deep(5000)),
        ("results", b'{"results":' + deep(100_000) + b"}"),
        ("samples", b'{"doc_id":' + deep(100_000) + b"}\n"),
        ("samples", b'{"doc_id":0,"doc_hash":"aa","prompt_hash":"no hash","target_hash":"aa","metrics":[]}\n'),
        ("samples", b'{"doc_id":0,"doc_hash":"aa","prompt_hash":["00000000"],"target_hash":"aa","metrics":[]}\n'),
        ("samples", b'{"doc_id":0,"doc":"\xee"}\n'),
        ("baseline", b'{\n "assay_baseline":' + deep(100_000) + b"}"),
    ],
)
def test_what_is_nested_too_deeply_or_is_no_hash_is_refused(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, content: bytes
) -> None:
    shutil.copytree(whole, tmp_path / "copy")
    file = file_of(tmp_path / "copy", kind)
    file.write_bytes(content)
    command = ["gate", str(file), "--explain"] if kind == "policy" else ["compare", str(file), str(whole / "scripted")]
    with pytest.raises(SystemExit) as ended:
        main(command)
    told = capsys.readouterr().err
    assert (ended.value.code, told.count("\n")) == (2, 1)
    assert str(file) in told


@pytest.mark.parametrize("model", ["..", "x\0y", "n" * 300, "\ud800"])
def test_answers_scored_again_stay_in_their_folder(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    shutil.copytree(whole, tmp_path / "copy")
    file = file_of(tmp_path / "copy", "results")
    document = json.loads(file.read_bytes())
    document["assay"]["provenance"]["specification"]["model"]["model"] = model
    file.write_text(json.dumps(document))
    with pytest.raises(SystemExit) as ended:
        main(["score", str(file), "--output-dir", str(tmp_path / "a" / "b"), "--include-path", str(TASKS)])
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (2, 1)
    assert not [*tmp_path.glob("a/results*")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda lines: lines[1:], "has 59 documents, and its results file says 60"),
        (lambda lines: [*lines, lines[3]], "document 3 has a second line of the same filter"),
    ],
)
def test_a_samples_file_with_other_documents_than_were_scored_is_refused(
    whole: Path, tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], words: str
) -> None:
    shutil.copytree(whole, tmp_path / "copy")
    file = file_of(tmp_path / "copy", "samples")
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))
    with pytest.raises(FileFormatError, match=words):
        read_run(tmp_path / "copy" / "scripted")
