"""A run's endpoints as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from assay.report.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def endpoint_table(endpoints: Sequence[Mapping[str, Any]]) -> Table:
    """What each gave and how it fared, from the results' ``assay.endpoints``."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column("endpoint", overflow="fold")
    for heading in ("answers", "share", "median s", "requests", "failed attempts", "set aside", "unlike others"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in endpoints:
        prompts = one["short_prompts"]
        table.add_row(
            printable(one["url"] or "(one endpoint, before)"),
            str(one["answers"]),
            "" if one["share"] is None else f"{one['share']:.1%}",
            "" if one["median_latency_seconds"] is None else f"{one['median_latency_seconds']:.3f}",
            str(one["requests"]),
            ", ".join(f"{count} {cause}" for cause, count in one["faults"].items()) or "0",
            str(one["times_set_aside"]),
            "" if prompts is None else f"{prompts['differing']} of {prompts['answered']}",
        )
    return table
