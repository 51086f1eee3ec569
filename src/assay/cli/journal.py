"""``assay journal``: look into the durable record of a run, whole or damaged, finished or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from assay._util.json_text import json_line
from assay._util.text import clock, printable
from assay.cli.remarks import remark

if TYPE_CHECKING:
    from assay.journal import Header, JournalReport, ResponseRecord

_FAILURES_SHOWN = 5
_REGIONS_SHOWN = 10

_place = click.argument("path", type=click.Path(path_type=Path), metavar="FILE|FOLDER")


@click.group(short_help="Look into the record of a run: show, check, export.")
def journal() -> None:
    """Look into the record of a run, also while the run goes on; nothing is changed.

    FILE is a journal; FOLDER holds some: an output directory, a model's folder in it, or that folder's journal/.
    """


@journal.command(short_help="What was asked, how far it came, what failed.")
@_place
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one journal a line.")
def show(path: Path, as_json: bool) -> None:
    """Show what each journal holds: whose run, how far it came, answers, failures by cause, damage."""
    for number, file in enumerate(_journals(path)):
        summary = _summarise(file)
        if as_json:
            print(json_line(summary))
        else:
            print(("\n" if number else "") + "\n".join(_lines(summary)))


@journal.command(short_help="Whether every byte is as it was written.")
@_place
def check(path: Path) -> int:
    """Read each journal from end to end. Exit code 0: all are whole; 1: at least one is damaged.

    A torn end is what a killed process leaves behind, or what a running one is just writing.
    """
    from assay.journal import check as check_journal

    exit_code = 0
    for file in _journals(path):
        report = check_journal(file)
        lines = _damage_lines(report)
        print(f"{printable(str(file), 1000)}: {'damaged' if lines else 'whole'}, {report.records} records")
        for line in lines:
            print(f"  {line}")
        exit_code = 1 if lines else exit_code
    return exit_code


@journal.command(short_help="All records as JSON lines.")
@_place
def export(path: Path) -> None:
    """Write every whole record of one journal to stdout, one JSON object a line; docs/journal.md names the fields."""
    from assay.errors import SpecificationError
    from assay.journal import check as check_journal
    from assay.journal import encode_record, records

    files = _journals(path)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise SpecificationError(f"{path} holds {len(files)} journals; name one of {names}")
    for record in records(files[0]):
        sys.stdout.buffer.write(encode_record(record) + b"\n")
    sys.stdout.buffer.flush()
    for line in _damage_lines(check_journal(files[0])):
        remark(f"left out: {line}")


def _journals(path: Path) -> list[Path]:
    """The journal that `path` is, or all that lie in it, oldest first."""
    from assay.errors import JournalError
    from assay.journal import find_journals

    if not path.is_dir():
        return [path]
    for folders in ([path], [path / "journal"], sorted(path.glob("*/journal"))):
        found = [file for folder in folders for file in find_journals(folder)]
        if found:
            return found
    raise JournalError(f"there is no journal in {path}: looked there, in journal/ and in */journal/")


class _TaskSummary(msgspec.Struct):
    """What came of one task's requests."""

    answers: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _FailureShown(msgspec.Struct, frozen=True):
    task: str
    doc_id: int
    cause: str
    message: str


class _Summary(msgspec.Struct, kw_only=True):
    """A journal as it is shown. Times are Unix times."""

    report: JournalReport
    begun: float | None = None
    last: float | None = None
    starts: int = 0
    """Processes that opened it for writing."""
    tasks: dict[str, _TaskSummary] = {}
    finish_reasons: dict[str, int] = {}
    failures: list[_FailureShown] = []
    """Requests whose last response is a failure."""


def _summarise(file: Path) -> _Summary:
    from assay.journal import Header, ResponseRecord, records
    from assay.journal import check as check_journal

    summary = _Summary(report=check_journal(file))
    unanswered: dict[str, _FailureShown] = {}
    for record in records(file):
        summary.begun = record.time if summary.begun is None else summary.begun
        summary.last = record.time
        if isinstance(record, Header):
            summary.starts += 1
        elif isinstance(record, ResponseRecord):
            _count(record, summary, unanswered)
    summary.failures = list(unanswered.values())
    for failed in summary.failures:
        _task(summary, failed.task).failures += 1
    return summary


def _count(record: ResponseRecord, summary: _Summary, unanswered: dict[str, _FailureShown]) -> None:
    from assay.types import Failure

    answer = record.response
    if isinstance(answer, Failure):
        unanswered[record.key] = _FailureShown(record.task, record.doc_id, answer.cause, answer.message)
        return
    unanswered.pop(record.key, None)
    task = _task(summary, record.task)
    task.answers += 1
    task.prompt_tokens += answer.prompt_tokens or 0
    task.completion_tokens += answer.completion_tokens or 0
    reason = answer.finish_reason or "none given"
    summary.finish_reasons[reason] = summary.finish_reasons.get(reason, 0) + 1


def _task(summary: _Summary, name: str) -> _TaskSummary:
    return summary.tasks.setdefault(name, _TaskSummary())


def _lines(summary: _Summary) -> list[str]:
    report = summary.report
    rows = [
        ("run", _run_line(report)),
        ("asked", _asked_line(report.header)),
        ("begun", _begun_line(summary)),
        ("state", _state_line(report)),
        ("answers", _answers_line(summary)),
        ("failures", ", ".join(f"{count} {cause}" for cause, count in report.failures.items()) or "none"),
    ]
    lines = [printable(str(report.path), 1000)]
    lines += [f"  {name:10}{text}" for name, text in rows]
    for failed in summary.failures[:_FAILURES_SHOWN]:
        lines.append(f"  {'':10}{printable(failed.task)} {failed.doc_id}: {failed.cause}: {printable(failed.message)}")
    if len(summary.failures) > _FAILURES_SHOWN:
        lines.append(f"  {'':10}… and {len(summary.failures) - _FAILURES_SHOWN} more: --json lists all")
    damage = _damage_lines(report) or ["none"]
    return lines + [f"  {'damage' if not number else '':10}{line}" for number, line in enumerate(damage)]


def _run_line(report: JournalReport) -> str:
    header = report.header
    if header is None:
        return "no record says which"
    return f"{printable(header.fingerprint[:12])}, written by Assay {printable(header.assay)}, {report.size:,} bytes"


def _asked_line(header: Header | None) -> str:
    specification = header.specification if header is not None else {}
    from assay.journal.records import task_names

    model = specification.get("model")
    if not isinstance(model, dict):
        return "?"
    tasks = ", ".join(str(task) for task in task_names(specification))
    # A model that ran in the process has no address.
    where = f" at {model['base_url']} ({model.get('endpoint')})" if "base_url" in model else ""
    return printable(f"{tasks} of {model.get('model')}{where}", 500)


def _begun_line(summary: _Summary) -> str:
    if summary.begun is None or summary.last is None:
        return "?"
    begun = clock(summary.begun, "%Y-%m-%d %H:%M:%S")
    resumptions = summary.starts - 1
    times = "once" if resumptions == 1 else f"{resumptions} times"
    resumed = f"; resumed {times}" if resumptions > 0 else ""
    return f"{begun}, last record {summary.last - summary.begun:,.1f} s later{resumed}"


def _state_line(report: JournalReport) -> str:
    if report.finished:
        if report.failed:
            return f"finished, {report.failed} samples failed; the same command asks only these again"
        return "finished"
    if report.date_id is not None:
        return f"was writing its results ({printable(report.date_id)}); the same command writes them"
    return "under way, or interrupted: then the same command goes on with it"


def _answers_line(summary: _Summary) -> str:
    tasks = summary.tasks.values()
    line = f"{summary.report.answers:,}"
    if len(summary.tasks) > 1:
        line += " (" + ", ".join(f"{printable(name)} {task.answers:,}" for name, task in summary.tasks.items()) + ")"
    if summary.finish_reasons:
        reasons = sorted(summary.finish_reasons.items(), key=lambda item: -item[1])
        line += "; ended by " + ", ".join(f"{printable(reason)} {count:,}" for reason, count in reasons)
    prompt, completion = sum(task.prompt_tokens for task in tasks), sum(task.completion_tokens for task in tasks)
    return f"{line}; {prompt:,} prompt and {completion:,} completion tokens" if prompt or completion else line


def _damage_lines(report: JournalReport) -> list[str]:
    lines = [f"{region.length} bytes at {region.offset} belong to no record" for region in report.damaged]
    if len(lines) > _REGIONS_SHOWN:
        lost = sum(region.length for region in report.damaged)
        lines = [*lines[:_REGIONS_SHOWN], f"… in all {len(report.damaged)} places, {lost} bytes"]
    if report.torn is not None:
        lines.append(f"torn end: {report.torn.length} bytes at {report.torn.offset}; the next start cuts them off")
    return lines
