"""``assay selfcheck``: does one server do what it says?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from assay.cli.remarks import remark
from assay.cli.sections import SectionedCommand
from assay.cli.server_options import server_options, with_server_options

if TYPE_CHECKING:
    from assay.identity import SelfcheckReport


def _levels(_: click.Context, __: click.Parameter, value: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of whole numbers such as 1,4,16,64") from None


@click.command(cls=SectionedCommand, short_help="Check one server against itself: cache, load, sampling, …")
@click.option("--base-url", required=True, help="Server's address, with or without /v1.", metavar="URL")
@click.option("--model", required=True, help="Name under which the server serves the model.", metavar="NAME")
@click.option("--completions", is_flag=True, help="Ask /v1/completions with plain text instead of chat.")
@click.option(
    "--at-once",
    "levels",
    default="1,4,16,64",
    show_default=True,
    callback=_levels,
    help="How many requests at once, compared with one at a time.",
    metavar="N,N,…",
)
@click.option(
    "--alpha", type=float, default=0.001, show_default=True, help="Greatest chance of any fault on a sound server."
)
@click.option("--seed", type=int, help="Of the prompts.  [default: another each time]", metavar="N")
@click.option("--no-probe", is_flag=True, help="Leave out what 'assay probe' asks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
def selfcheck(
    base_url: str,
    model: str,
    completions: bool,
    levels: tuple[int, ...],
    alpha: float,
    seed: int | None,
    no_probe: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Check without any reference whether a server does what it says: some 500 short answers.

    Cold and cached prompts, many requests at once, streams, stop strings, limits, seeds, temperature and top_p, and
    what it states of its own tokens. Exit code 0: no fault; 1: a fault; 3: a check was inconclusive.

    \b
    Example:
      assay selfcheck --base-url http://localhost:8000 --model my-model
    """
    import secrets

    import msgspec

    from assay.identity import SelfcheckOptions, check_itself
    from assay.types import ModelSpec

    spec = ModelSpec(base_url=base_url, model=model, endpoint="completions" if completions else "chat")
    chosen = SelfcheckOptions(
        alpha=alpha,
        levels=levels,
        with_probe=not no_probe,
        seed=secrets.randbelow(2**31) if seed is None else seed,
    )
    report = check_itself(with_server_options(spec, options), chosen, on_progress=remark)
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        _print(report)
    return report.exit_code


def _print(report: SelfcheckReport) -> None:
    from rich.table import Table
    from rich.text import Text

    from assay._util.text import printable
    from assay.cli.consoles import OutputConsole
    from assay.identity.selfcheck import TITLES, Outcome

    styles = {Outcome.OK: "green", Outcome.FAULT: "red", Outcome.INCONCLUSIVE: "yellow", Outcome.CANNOT: "dim"}
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in report.findings:
        outcome = Text(each.outcome, style=styles[each.outcome])
        table.add_row(TITLES[each.check], outcome, Text(printable(each.says, 1000)))
    for title, evidence in report.seen_by_probe:
        table.add_row(title, Text("note", style="yellow"), Text(printable(evidence, 1000)))
    console = OutputConsole()
    console.print(printable(f"{report.model} at {report.url}", 500), soft_wrap=True)
    console.print()
    console.print(table)
    console.print()
    console.print(printable(report.summary, 1000), soft_wrap=True)
