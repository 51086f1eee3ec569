"""What a gate will be able to see, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from assay._util.text import printable
from assay.reports.fitting import fitting_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from assay.gate.explain import Outlook

_HEADINGS = ("model", "task", "metric", "demanded", "n", "alpha", "sees", "healthy", "broken")
_LONGEST = 600
_NOTES = """
n: documents that may be asked of those there are
alpha: greatest chance of a wrong pass, and of a wrong fail, the check's share; none where all documents decide
sees: the smallest drop that n documents would show in four runs of five; exact where n is everything
healthy, broken: what is assumed, and the documents after which half of such runs are decided"""


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
        f"{outlook.budget} of {outlook.population}",
        "–" if outlook.alpha is None else f"{outlook.alpha:.2g}",
        _sees(outlook),
        _expected(outlook, outlook.healthy, outlook.healthy_documents),
        _expected(outlook, outlook.broken, outlook.broken_documents),
    )


def _expected(outlook: Outlook, assumed: str | None, documents: int) -> str:
    return f"{assumed or 'any'}: {documents}{_beyond(outlook, documents)}"


def _sees(outlook: Outlook) -> str:
    if outlook.budget == outlook.population:
        return "exact"
    return "nothing: only the whole run decides" if outlook.detectable is None else f"{outlook.detectable:.3f}"


def _beyond(outlook: Outlook, documents: int) -> str:
    return " (beyond the budget)" if documents > outlook.budget else ""
