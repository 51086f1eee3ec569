"""A comparison as a table in the terminal, and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from assay._util.text import printable
from assay.reports.markdown import table as markdown_table
from assay.reports.wide_tables import FirstThatFits
from assay.tasks.repeats import is_of_repeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from assay.runs.compare import Change, Comparison, Flip
    from assay.runs.record import AnswerText

_HEADINGS = (
    "task",
    "metric",
    "baseline",
    "candidate",
    "difference",
    "95 % interval",
    "p",
    "p Holm",
    "lost",
    "gained",
    "n",
)
_ANSWER_LENGTH = 160
_SURE = 0.05
_DECIDES = (
    "{} below 0.05 decides that a difference is more than chance; the interval is approximate and may disagree near 0"
)
_ADJUSTED = "p Holm, adjusted for all {} (p is for the row alone),"


def comparison_text(comparison: Comparison, flips_shown: int) -> RenderableType:
    """For the terminal.

    Args:
        comparison: what is shown.
        flips_shown: flipped answers to print, at most.
    """
    warnings = [Text(f"not comparable  {line}", style="bold yellow") for line in mismatch_lines(comparison)]
    remarks = [Text(printable(remark), style="dim") for remark in comparison.remarks]
    flips = [Text(line) for flip in comparison.flips[:flips_shown] for line in _flip_lines(flip)]
    rest = len(comparison.flips) - flips_shown
    if flips_shown and rest > 0:
        flips.append(
            Text(f"… and {rest} more flipped answers: --flips {len(comparison.flips)}, or --json", style="dim")
        )
    remarks += [Text(line, style="dim") for line in _p_value_lines(comparison)]
    table = FirstThatFits(_table(comparison), otherwise=Group(*map(_change_line, comparison.changes)))
    return Group(_heading(comparison), table, *warnings, *remarks, *([Text(), *flips] if flips else []))


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if place < 2 else "right", no_wrap=place >= 2)
    for change in comparison.changes:
        style = "bold" if change.is_group else ""
        task, metric, *figures = _cells(change)
        table.add_row(
            Text(printable(task), style=style), printable(metric), *figures[:2], _coloured(change), *figures[3:]
        )
    return table


def _change_line(change: Change) -> Text:
    """For a narrow terminal."""
    task, metric, before, after, _, interval, p_value, adjusted, lost, gained, n = _cells(change)
    return Text.assemble(
        (printable(task), "bold" if change.is_group else ""),
        f" {printable(metric)}: {before} -> {after}\n  ",
        _coloured(change),
        f", 95 % interval {interval}, p {p_value}, p Holm {adjusted}, lost {lost}, gained {gained}, n {n}",
    )


def comparison_markdown(comparison: Comparison, flips_shown: int) -> str:
    """For a pull request."""
    lines = [
        str(_heading(comparison)),
        "",
        *markdown_table(_HEADINGS, [_cells(change) for change in comparison.changes]),
    ]
    for line in mismatch_lines(comparison):
        lines += ["", f"**Not comparable:** {line}"]
    lines += [f"\n{printable(remark)}" for remark in (*comparison.remarks, *_p_value_lines(comparison))]
    shown = comparison.flips[:flips_shown]
    if shown:
        lines += ["", f"<details><summary>{len(comparison.flips)} flipped answers</summary>", ""]
        rows = [
            (flip.task, str(flip.doc_id), flip.change, _target(flip), _extract(flip.before), _extract(flip.after))
            for flip in shown
        ]
        lines += markdown_table(("task", "document", "change", "target", "baseline", "candidate"), rows)
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _p_value_lines(comparison: Comparison) -> list[str]:
    rows = len(comparison.changes)
    if rows < 2:
        return [_DECIDES.format("p")] if rows else []
    has_kinds = any(is_of_repeats(change.metric) for change in comparison.changes)
    return [_DECIDES.format(_ADJUSTED.format("rows of its kind" if has_kinds else f"{rows} rows"))]


def mismatch_lines(comparison: Comparison) -> list[str]:
    """What differs besides the answers, tasks with the same differences together."""
    tasks_by_change: dict[tuple[str, ...], list[str]] = {}
    for task, changes in comparison.mismatches.items():
        tasks_by_change.setdefault(changes, []).append(task)
    return [
        printable(f"{tasks[0]}{f' and {len(tasks) - 1} more' if len(tasks) > 1 else ''}: {'; '.join(changes)}", 2000)
        for changes, tasks in tasks_by_change.items()
    ]


def _heading(comparison: Comparison) -> Text:
    return Text(
        printable(
            f"baseline {comparison.baseline_model} ({comparison.baseline}), "
            f"candidate {comparison.candidate_model} ({comparison.candidate})",
            1000,
        )
    )


def _cells(change: Change) -> tuple[str, ...]:
    interval = change.interval
    return (
        change.task,
        change.metric,
        f"{change.baseline:.4f}",
        f"{change.candidate:.4f}",
        f"{change.difference:+.4f}",
        "–" if interval is None else f"{interval.low:+.4f} – {interval.high:+.4f}",
        f"{change.p_value:.2g}",
        f"{change.p_adjusted:.2g}",
        str(change.lost),
        str(change.gained),
        str(change.n) + (f" ({change.failed} failed)" if change.failed else ""),
    )


def _coloured(change: Change) -> Text:
    """The difference, in colour where it is more than chance."""
    text = Text(f"{change.difference:+.4f}")
    if change.p_adjusted < _SURE:
        text.stylize("green" if (change.difference > 0) == change.higher_is_better else "red")
    return text


def _flip_lines(flip: Flip) -> Sequence[str]:
    lines = [f"{flip.change:6} {printable(flip.task)} {flip.doc_id} {printable(flip.metric)}: target {_target(flip)}"]
    for name, answer in (("baseline", flip.before), ("candidate", flip.after)):
        said = "its text was not kept" if answer is None else f"{_extract(answer)}  <-  {_end_of(answer.response)}"
        lines.append(f"         {name:9} {said}")
    return lines


def _target(flip: Flip) -> str:
    answer = flip.after or flip.before
    return "?" if answer is None else printable(answer.target, 60)


def _extract(answer: AnswerText | None) -> str:
    return "?" if answer is None else printable(answer.extracted, 60)


def _end_of(text: str) -> str:
    """An answer's end, where the result is."""
    shown = printable(text[-_ANSWER_LENGTH:], 2 * _ANSWER_LENGTH)
    return shown if len(text) <= _ANSWER_LENGTH else f"…{shown}"
