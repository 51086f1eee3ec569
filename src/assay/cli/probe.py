"""``assay probe``: what a server can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from assay.cli.sections import SectionedCommand
from assay.cli.server_options import address_options, addresses, connection_options, with_server_options

if TYPE_CHECKING:
    from rich.table import Table

    from assay.client.probe import ProbeReport


@click.command(cls=SectionedCommand, short_help="See what a server can do, and how it behaves.")
@address_options
@click.option("--model", help="Model to ask; default: the first that the server lists.", metavar="NAME")
@connection_options
@click.option("--quick", is_flag=True, help="Only the questions that are asked before every run; takes a few seconds.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=120.0,
    show_default=True,
    help="Stop asking after S seconds.",
    metavar="S",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def probe(model: str | None, quick: bool, seconds: float, as_json: bool, **options: Any) -> int:
    """Ask a server about fifty short questions and show what it can do: seen, not guessed.

    Several servers are probed one after another. Exit code 4 if nothing answers.

    \b
    Example:
      assay probe --base-url http://localhost:8000
    """
    from assay.client.probe import probe as look
    from assay.client.probe.report import require_reachable
    from assay.types import ModelSpec

    specs = [with_server_options(ModelSpec(base_url=url, model=model or ""), options) for url in addresses(options)]
    reports = [look(spec, quick=quick, seconds=seconds) for spec in specs]
    if as_json:
        import json

        import msgspec

        print(json.dumps(msgspec.to_builtins(reports if len(reports) > 1 else reports[0])))
    else:
        for place, report in enumerate(one for one in reports if one.is_reachable):
            if place:
                print()
            _print(report)
    require_reachable(reports)
    return 0


def _print(report: ProbeReport) -> None:
    from assay._util.text import printable
    from assay.cli.consoles import OutputConsole

    console = OutputConsole()
    software = " ".join(part for part in (report.software, report.version) if part) or "an unknown server"
    console.print(printable(f"{report.model} at {report.url}: {software}", 500), soft_wrap=True)
    if report.answered_as is not None:
        asked, said = printable(repr(report.model)), printable(repr(report.answered_as))
        console.print(f"warning: asked for {asked}, but an answer names {said}", soft_wrap=True)
    console.print()
    console.print(_table(report))
    console.print()
    console.print(f"{report.requests} requests, {report.seconds:.1f} s")


def _table(report: ProbeReport) -> Table:
    from rich.table import Table
    from rich.text import Text

    from assay._util.text import printable
    from assay.client.probe import TITLES, Seen

    styles = {Seen.YES: "green", Seen.NO: "yellow", Seen.UNKNOWN: "dim"}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for capability, finding in report.findings.items():
        seen = Text(finding.seen, style=styles[finding.seen])
        table.add_row(TITLES[capability], seen, Text(printable(finding.evidence)))
    return table
