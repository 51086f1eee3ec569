"""Shows a run's statistics as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from assay.helm.stats import Stat

_BOOKKEEPING = ("num_", "finish_reason_", "training_", "max_prob", "batch_size", "prompt_truncated", "predicted_index")


def main_stats(stats: Iterable[Stat]) -> list[Stat]:
    """The scores, with their worst cases where there are perturbations; without bookkeeping such as token counts."""
    scores = [stat for stat in stats if stat.count and not stat.name.name.startswith(_BOOKKEEPING)]
    has_perturbations = any(
        stat.name.perturbation and stat.name.perturbation.computed_on == "perturbed" for stat in scores
    )
    return [stat for stat in scores if has_perturbations or stat.name.perturbation is None]


def stats_table(stats: Sequence[Stat]) -> Table:
    """One row for each statistic: the metric, its instances, the mean over the trials."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("metric", "split", "perturbation"):
        table.add_column(title)
    for title in ("mean", "trials"):
        table.add_column(title, justify="right")
    for stat in stats:
        mean = "" if stat.mean is None else f"{stat.mean:.4g}"
        table.add_row(printable(stat.name.name), _split(stat), _perturbation(stat), mean, str(stat.count))
    return table


def _split(stat: Stat) -> str:
    return printable("/".join(part for part in (stat.name.split, stat.name.sub_split) if part))


def _perturbation(stat: Stat) -> str:
    perturbation = stat.name.perturbation
    if perturbation is None:
        return ""
    which = "" if perturbation.computed_on == "perturbed" else f" ({perturbation.computed_on})"
    return printable(perturbation.name + which)
