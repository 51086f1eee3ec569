"""``assay journal``: look into the durable record of a run, whole or damaged, finished or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay._util.json_text import json_line
from assay._util.text import clock, printable
from assay.cli.remarks import remark

if TYPE_CHECKING:
    from assay.journal import Header, JournalReport
    from assay.journal.summary import JournalSummary

_FAILURES_SHOWN = 5
_REGIONS_SHOWN = 10

_place = click.argument("path", type=click.Path(path_type=Path), metavar="FILE|FOLDER")


@click.group(short_help="Look into the record of a run: show, check, export.")
def journal() -> None:
    """Look into the record of a run, also while the run goes on; nothing is changed.

    FILE is a journal; FOLDER holds some: an output directory, a model's folder in it, or that folder's journal/.
    """


@journal.command(short_help="Show what was asked, how far the run came, what failed.")
@_place
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one journal a line.")
def show(path: Path, as_json: bool) -> None:
    """Show what each journal holds: whose run, how far it came, answers, failures by cause, damage."""
    from assay.journal.summary import journals_at, summarise

    for number, file in enumerate(journals_at(path)):
        summary = summarise(file)
        if as_json:
            print(json_line(summary))
        else:
            print(("\n" if number else "") + "\n".join(_lines(summary)))


@journal.command(short_help="Check that every byte is as it was written.")
@_place
def check(path: Path) -> int:
    """Read each journal from end to end. Exit code 0: all are whole; 1: at least one is damaged.

    A torn end is what a killed process leaves behind, or what a running one is just writing.
    """
    from assay.journal import check as check_journal
    from assay.journal.summary import journals_at

    exit_code = 0
    for file in journals_at(path):
        report = check_journal(file)
        lines = _damage_lines(report)
        print(f"{printable(str(file), 1000)}: {'whole' if report.is_whole else 'damaged'}, {report.records} records")
        for line in lines:
            print(f"  {line}")
        exit_code = exit_code if report.is_whole else 1
    return exit_code


@journal.command(short_help="Print all records as JSON lines.")
@_place
def export(path: Path) -> None:
    """Write every whole record of one journal to stdout, one JSON object a line; docs/journal.md names the fields."""
    from assay.errors import SpecificationError
    from assay.journal import check as check_journal
    from assay.journal import encode_record, records
    from assay.journal.summary import journals_at

    files = journals_at(path)
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise SpecificationError(f"{path} holds {len(files)} journals; name one of {names}")
    for record in records(files[0]):
        sys.stdout.buffer.write(encode_record(record) + b"\n")
    sys.stdout.buffer.flush()
    for line in _damage_lines(check_journal(files[0])):
        remark(f"left out: {line}")


def _lines(summary: JournalSummary) -> list[str]:
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


def _begun_line(summary: JournalSummary) -> str:
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


def _answers_line(summary: JournalSummary) -> str:
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
