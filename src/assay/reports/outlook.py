"""What a gate will be able to detect, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from assay._util.text import printable
from assay.reports.wide_tables import fitting_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from assay.gate.explain import Outlook

_HEADINGS = (
    "model",
    "task",
    "metric",
    "demanded",
    "documents",
    "alpha",
    "smallest detectable drop",
    "if healthy",
    "if broken",
)
_LONGEST = 600
_NOTES = """
documents: may be asked, of those there are
alpha: chance of a wrong pass, and of a wrong fail; none where only all documents decide
smallest detectable drop: found in four runs of five; any where all documents may be asked
if healthy, if broken: a score assumed for each, and after how many documents such a run is decided (median)"""


def outlook_text(outlooks: Sequence[Outlook]) -> RenderableType:
    """One row a check, and what the columns mean."""
    table = fitting_table(_HEADINGS, [_cells(outlook) for outlook in outlooks], names=4)
    return Group(table, *_remarks(outlooks), Text(_NOTES, style="dim"))


def _remarks(outlooks: Sequence[Outlook]) -> Iterator[Text]:
    for outlook in outlooks:
        for remark in outlook.remarks:
            yield Text(
                printable(f"{outlook.model} {outlook.task} {outlook.metric}: {remark}", _LONGEST), style="yellow"
            )


def _cells(outlook: Outlook) -> tuple[str, ...]:
    return (
        outlook.model,
        outlook.task,
        outlook.metric,
        outlook.demand,
        _documents(outlook),
        "–" if outlook.alpha is None else f"{outlook.alpha:.2g}",
        _sees(outlook),
        _expected(outlook, outlook.healthy, outlook.healthy_documents),
        _expected(outlook, outlook.broken, outlook.broken_documents),
    )


def _documents(outlook: Outlook) -> str:
    whole = str(outlook.population)
    return whole if outlook.budget == outlook.population else f"{outlook.budget} of {whole}"


def _expected(outlook: Outlook, assumed: str | None, documents: int) -> str:
    return f"{assumed or 'any score'}: {documents}{_beyond(outlook, documents)}"


def _sees(outlook: Outlook) -> str:
    if outlook.budget == outlook.population:
        return "any"
    return "none: only all documents decide" if outlook.detectable is None else f"{outlook.detectable:.3f}"


def _beyond(outlook: Outlook, documents: int) -> str:
    return " (over budget)" if documents > outlook.budget else ""
