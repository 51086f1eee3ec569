"""Baselines: a run's scores and hashes in one small JSON file, made for git.

Scores of 0 and 1 are digits, and hashes are cut to eight hexadecimal digits and written in base64. Each line holds a
hundred documents, so that a changed answer changes one line. MMLU-Pro's 12,032 documents take about 160 kB.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.storage import write_whole
from assay.errors import FileFormatError, SpecificationError
from assay.runs.answers import read_answers
from assay.runs.record import AnswerText, GroupRecord, Part, RecordedRun, Score, TaskRecord
from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_FORMAT = "assay_baseline"
_VERSION = 1
_PER_LINE = 100
_HASH_BYTES = 4


def write_baseline(run: RecordedRun, path: str | Path, *, with_texts: bool = False) -> None:
    """Write a run as a baseline.

    Args:
        run: the run.
        path: the file.
        with_texts: keep the answers' texts too, for reports of flipped answers; makes the file large.

    Raises:
        SpecificationError: the run cannot be a baseline: it was stopped early or has no scores.
        OutputError: the file cannot be written.
    """
    if run.stopped_early:
        raise SpecificationError(f"{run.source} was stopped early and is no baseline: it lacks most documents")
    if not any(task.scores and task.doc_ids for task in run.tasks.values()):
        raise SpecificationError(f"{run.source} has no scores to be compared with")
    document = {
        _FORMAT: _VERSION,
        "model": run.model,
        "date": run.date,
        "journal": run.journal,
        "versions": run.versions,
        "groups": msgspec.to_builtins(run.groups),
        "tasks": {name: _task_entry(task, with_texts=with_texts) for name, task in run.tasks.items()},
    }
    text = json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    write_whole(Path(path), text.encode("utf-8", "backslashreplace"), failure=f"cannot write the baseline {path}")


def is_baseline(path: Path) -> bool:
    """Whether a JSON file is a baseline, by its first key."""
    try:
        with path.open("rb") as file:
            return f'\n "{_FORMAT}":'.encode() in file.read(4096)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error


def load_baseline(path: str | Path) -> RecordedRun:
    """Read a baseline back.

    Raises:
        FileFormatError: the file is missing, damaged, or of a newer format.
    """
    try:
        document = json.loads(Path(path).read_bytes())
        if document[_FORMAT] > _VERSION:
            raise FileFormatError(f"{path} has baseline format {document[_FORMAT]}, written by a newer Assay")
        return RecordedRun(
            source=str(path),
            model=document["model"],
            date=document["date"],
            journal=document.get("journal"),
            versions=document["versions"],
            groups=msgspec.convert(document["groups"], dict[str, GroupRecord]),
            tasks={name: _task_record(name, entry) for name, entry in document["tasks"].items()},
        )
    except FileNotFoundError:
        raise FileFormatError(f"there is no baseline {path}") from None
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise FileFormatError(f"{path} is no baseline, or damaged: {type(error).__name__} {error}") from error


def _task_entry(task: TaskRecord, *, with_texts: bool) -> dict[str, Any]:
    entry = {
        "settings": task.settings,
        "doc_ids": _encode_ranges(task.doc_ids),
        "failed": _encode_ranges(task.failed),
        "documents": [_encode_hashes(line) for line in _chunks(task.documents)],
        "prompts": [_encode_hashes(line) for line in _chunks(task.prompts)],
        "scores": {key: [_encode_scores(line) for line in _chunks(scores)] for key, scores in task.scores.items()},
        "values": task.values,
        "higher_is_better": task.higher_is_better,
    }
    if task.part is not None:
        entry["part"] = msgspec.to_builtins(task.part)
    if with_texts:
        entry["texts"] = {name: _texts(task, name) for name in _filters(task)}
    return entry


def _task_record(name: str, entry: dict[str, Any]) -> TaskRecord:
    record = TaskRecord(
        name=name,
        settings=entry["settings"],
        doc_ids=tuple(_decode_ranges(entry["doc_ids"])),
        failed=tuple(_decode_ranges(entry["failed"])),
        documents=tuple(_decode_hashes(entry["documents"])),
        prompts=tuple(_decode_hashes(entry["prompts"])),
        scores={key: tuple(_decode_scores(lines)) for key, lines in entry["scores"].items()},
        part=msgspec.convert(entry.get("part"), Part | None),
        values=entry["values"],
        higher_is_better=entry["higher_is_better"],
        texts=msgspec.convert(entry.get("texts", {}), dict[str, tuple[AnswerText, ...]]),
    )
    columns = [record.documents, record.prompts, *record.scores.values(), *record.texts.values()]
    if any(len(column) != len(record.doc_ids) for column in columns):
        raise ValueError(f"the columns of task '{name}' have different lengths")
    return record


def _filters(task: TaskRecord) -> list[str]:
    return list(dict.fromkeys(MetricKey.read(key).filter for key in task.scores))


def _texts(task: TaskRecord, filter_name: str) -> list[dict[str, str]]:
    answers = read_answers(task, filter_name, task.doc_ids)
    missing = AnswerText("", "", "")
    return [msgspec.to_builtins(answers.get(doc_id, missing)) for doc_id in task.doc_ids]


def _chunks(column: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (column[start : start + _PER_LINE] for start in range(0, len(column), _PER_LINE))


def _encode_hashes(hashes: Iterable[str]) -> str:
    return base64.b64encode(bytes.fromhex("".join(hashes))).decode("ascii")


def _decode_hashes(lines: Iterable[str]) -> Iterator[str]:
    size = 2 * _HASH_BYTES
    for line in lines:
        digits = base64.b64decode(line, validate=True).hex()
        yield from (digits[start : start + size] for start in range(0, len(digits), size))


def _encode_scores(scores: Sequence[Score]) -> str:
    """``"0110"`` for right-or-wrong scores; else a word for each document, where ``v`` precedes a list of verdicts."""
    if all(isinstance(score, float) and score in (0.0, 1.0) for score in scores):
        return "".join("1" if score else "0" for score in scores)
    return " ".join(["", *(_encode_score(score) for score in scores)])


def _encode_score(score: Score) -> str:
    return repr(score) if isinstance(score, float) else "v" + "".join("1" if verdict else "0" for verdict in score)


def _decode_scores(lines: Iterable[str]) -> Iterator[Score]:
    for line in lines:
        if line.startswith(" "):
            yield from (_decode_score(word) for word in line.split())
        else:
            yield from ({"0": 0.0, "1": 1.0}[digit] for digit in line)


def _decode_score(word: str) -> Score:
    return tuple(digit == "1" for digit in word[1:]) if word.startswith("v") else float(word)


def _encode_ranges(numbers: Sequence[int]) -> str:
    """``"0-39,41"`` for ascending numbers."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _decode_ranges(text: str) -> Iterator[int]:
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
