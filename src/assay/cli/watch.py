"""``assay watch``: tell from a few one-token requests a visit when a server changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.sections import SectionedCommand
from assay.cli.server_options import server_options, with_server_options

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=SectionedCommand, short_help="Visit a server from cron, and give alarm when it changes.")
@click.argument("record", type=_FILE)
@click.argument("log", type=_FILE)
@click.option("--base-url", required=True, help="Server's address, with or without /v1.", metavar="URL")
@click.option("--model", help="Name under which the server serves the model.  [default: the record's]", metavar="NAME")
@click.option("--every", type=float, required=True, help="Minutes between two visits, as cron has it.", metavar="MIN")
@click.option("--requests", type=int, default=3, show_default=True, help="One-token requests a visit.", metavar="N")
@click.option("--false-alarms", type=float, default=1.0, show_default=True, help="At most so many a year.", metavar="N")
@click.option("--noise", multiple=True, type=_FILE, help="Fingerprint that counts as healthy. Repeatable.")
@click.option("--tolerate", type=float, default=0.0, help="Mean divergence that counts as noise.", metavar="NATS")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
def watch(
    record: Path, log: Path, base_url: str, model: str | None, noise: tuple[Path, ...], as_json: bool, **options: Any
) -> int:
    """Compare a few first tokens with RECORD (of assay fingerprint save), and append what was found to LOG.

    Evidence adds up from visit to visit. Exit code 0: quiet; 1: the server changed; 4: it is gone.

    \b
    Example (crontab):
      */10 * * * * assay watch model.json watch.jsonl --base-url http://localhost:8000 --every 10
    """
    import msgspec

    from assay._util.text import printable
    from assay.identity import WatchOptions, read_fingerprint
    from assay.identity import watch as visit_server
    from assay.types import ModelSpec

    fingerprint = read_fingerprint(record)
    chosen = WatchOptions(**{name: options[name] for name in WatchOptions.__struct_fields__})
    spec = ModelSpec(
        base_url=base_url, model=model or fingerprint.model, endpoint=fingerprint.endpoint, seed=fingerprint.seed
    )
    spec = with_server_options(spec, options)
    visit = visit_server(fingerprint, spec, log, chosen, list(map(read_fingerprint, noise)))
    words = f"{visit.verdict.upper()}  {printable(visit.reason, 1000)}"
    print(msgspec.json.encode(visit).decode() if as_json else words)
    return visit.exit_code
