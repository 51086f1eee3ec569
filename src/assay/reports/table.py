"""A run's scores as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from assay._util.text import printable
from assay.reports.wide_tables import FirstThatFits
from assay.results.check_results import Verdict
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from assay.results.check_results import CheckResult
    from assay.scoring.corrections import Correction
    from assay.scoring.measure import Score

_VERDICT_STYLE = {
    Verdict.PASS: "bold green",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "bold yellow",
    Verdict.INVALID: "bold yellow",
}
_LONGEST_NOTE = 1000
_TASKS_NAMED = 3
_OUTCOME_STYLE = {Outcome.FAILED: "bold red", Outcome.TRUNCATED: "yellow", Outcome.EMPTY: "yellow"}


def score_table(scores: Sequence[Score]) -> RenderableType:
    """Task, metric, value, lm-eval's standard error, 95 % interval, n and outcomes; groups in bold.

    In a narrow terminal outcomes that no sample had are left out, and filters stand below their metrics; in a yet
    narrower one each score has lines of its own.
    """
    seen = [outcome for outcome in Outcome if any(score.outcomes.get(outcome) for score in scores)]
    return FirstThatFits(
        _table(scores, tuple(Outcome)),
        _table(scores, seen),
        _table(scores, seen, filters_below=True),
        otherwise=Group(*(line for score in scores for line in _lines(score))),
    )


def _table(scores: Sequence[Score], outcomes: Sequence[Outcome], *, filters_below: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("task")
    table.add_column("metric")
    for heading in ("value", "stderr", "95 % interval", "n", *outcomes):
        table.add_column(heading, justify="right", no_wrap=True)
    previous = None
    for score in scores:
        table.add_row(
            _task(score) if score.task != previous else "",
            printable(score.metric).replace(",", ",\n") if filters_below else printable(score.metric),
            _figure(score.value),
            _figure(score.stderr),
            _interval(score),
            str(score.n),
            *(_count(outcome, score.outcomes.get(outcome, 0)) for outcome in outcomes),
        )
        previous = score.task
    return table


def _lines(score: Score) -> Iterator[Text]:
    yield Text.assemble(_task(score), f" {printable(score.metric)}")
    yield Text(
        f"  {_figure(score.value)}, stderr {_figure(score.stderr)}, 95 % interval {_interval(score)}, n {score.n}"
    )
    counts = [(outcome, score.outcomes.get(outcome, 0)) for outcome in Outcome]
    seen = [Text.assemble(_count(outcome, number), f" {outcome}") for outcome, number in counts if number]
    yield Text("  ").append(Text(", ").join(seen))


def _task(score: Score) -> Text:
    return Text(printable(score.task), style="bold" if score.is_group else "")


def check_lines(checks: Sequence[CheckResult]) -> RenderableType:
    """One line a check: verdict, score, reason."""
    return Group(
        *(
            Text.assemble(
                (check.verdict.upper(), _VERDICT_STYLE[check.verdict]),
                f"  {printable(check.task)} {printable(check.metric)}: {check.reason}",
            )
            for check in checks
        )
    )


def correction_lines(corrections: Sequence[Correction]) -> list[Text]:
    """What lm-eval gets wrong about tasks, and the right values where they are known: one line for all alike."""
    tasks: dict[str, list[str]] = {}
    for correction in corrections:
        words = f"{printable(correction.note, _LONGEST_NOTE)}{_values(correction)}"
        tasks.setdefault(words, []).append(printable(correction.task))
    return [Text(f"{_listed(names)}: {words}", style="yellow") for words, names in tasks.items()]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _TASKS_NAMED
    return ", ".join(names[:_TASKS_NAMED]) + (f" and {more} more" if more > 0 else "")


def _values(correction: Correction) -> str:
    values = "; ".join(f"{printable(key)} {_figure(value)}" for key, value in correction.values.items())
    return f": {values}" if values else ""


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _interval(score: Score) -> str:
    interval = score.interval
    return "–" if interval is None else f"{interval.low:.4f} – {interval.high:.4f}"


def _count(outcome: Outcome, number: int) -> Text:
    return Text(str(number), style=_OUTCOME_STYLE.get(outcome, "") if number else "dim")
