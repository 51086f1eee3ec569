"""What a gate will be able to see, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from assay.report.fitting import fitting_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from assay.gate.explain import Outlook

_HEADINGS = ("model", "task", "metric", "demanded", "n", "alpha", "sees", "healthy", "broken")
_NOTES = """
n: documents that may be asked of those there are
alpha: greatest chance of a wrong pass, and of a wrong fail
sees: the smallest drop that n documents would show in four runs of five; exact where n is everything
healthy, broken: what is assumed, and the documents after which half of such runs are decided"""


def outlook_text(outlooks: Sequence[Outlook]) -> RenderableType:
    """One row a check, and what the columns mean."""
    table = fitting_table(_HEADINGS, [_cells(outlook) for outlook in outlooks], names=4)
    return Group(table, Text(_NOTES, style="dim"))


def _cells(outlook: Outlook) -> tuple[str, ...]:
    return (
        outlook.model,
        outlook.task,
        outlook.metric,
        outlook.demand,
        f"{outlook.budget} of {outlook.population}",
        f"{outlook.alpha:.2g}",
        _sees(outlook),
        f"{outlook.healthy}: {outlook.healthy_documents}{_beyond(outlook, outlook.healthy_documents)}",
        f"{outlook.broken}: {outlook.broken_documents}{_beyond(outlook, outlook.broken_documents)}",
    )


def _sees(outlook: Outlook) -> str:
    if outlook.detectable is None:
        return "nothing: only the whole run decides"
    return "exact" if outlook.budget == outlook.population else f"{outlook.detectable:.3f}"


def _beyond(outlook: Outlook, documents: int) -> str:
    return " (beyond the budget)" if documents > outlook.budget else ""
