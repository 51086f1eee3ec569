"""A run's endpoints as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.reports.wide_tables import fitting_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from assay.results.document import EndpointShare


HEADINGS = ("endpoint", "answers", "share", "median s", "requests", "failed attempts", "set aside", "unlike others")


def endpoint_table(endpoints: Sequence[EndpointShare]) -> RenderableType:
    """Each endpoint's answers, latency and faults."""
    return fitting_table(HEADINGS, endpoint_rows(endpoints), names=1)


def endpoint_rows(endpoints: Sequence[EndpointShare]) -> list[tuple[str, ...]]:
    """The table's cells, a row each endpoint."""
    return [_row(one) for one in endpoints]


def _row(one: EndpointShare) -> tuple[str, ...]:
    prompts = one.short_prompts
    return (
        one.url or "(one endpoint, before)",
        str(one.answers),
        "" if one.share is None else f"{one.share:.1%}",
        "" if one.median_latency_seconds is None else f"{one.median_latency_seconds:.3f}",
        str(one.requests),
        ", ".join(f"{count} {cause}" for cause, count in one.faults.items()) or "0",
        str(one.times_set_aside),
        "" if prompts is None else f"{prompts.differing} of {prompts.answered}",
    )
