"""``assay fingerprint``: is it still the same model?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.remarks import remark
from assay.cli.sections import SectionedCommand
from assay.cli.server_options import server_options, with_server_options

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group(short_help="Tell from some fifty one-token requests whether it is still the same model.")
def fingerprint() -> None:
    """Tell from some fifty one-token requests whether a server still serves the same model in the same way."""


@fingerprint.command(cls=SectionedCommand, short_help="Record a healthy server.")
@click.argument("file", type=_FILE)
@click.option("--base-url", required=True, help="Server's address, with or without /v1.", metavar="URL")
@click.option("--model", required=True, help="Name under which the server serves the model.", metavar="NAME")
@click.option("--completions", is_flag=True, help="Ask /v1/completions with plain text instead of chat.")
@click.option("--thorough", is_flag=True, help="Ask each prompt 24 times instead of 8.")
@server_options
def save(file: Path, base_url: str, model: str, completions: bool, thorough: bool, **options: Any) -> int:
    """Ask a healthy server for the first token of fifty answers, several times, and write FILE, made to be kept in git.

    The server must give log-probabilities.

    \b
    Example:
      assay fingerprint save my-model.fingerprint.json --base-url http://localhost:8000 --model my-model
    """
    from assay._util.storage import refuse_unwritable
    from assay.identity import THOROUGH_REPETITIONS, USUAL_REPETITIONS, take_fingerprint, write_fingerprint
    from assay.types import ModelSpec

    refuse_unwritable(file)
    spec = ModelSpec(base_url=base_url, model=model, endpoint="completions" if completions else "chat")
    spec = with_server_options(spec, options)
    found = take_fingerprint(
        spec, repetitions=THOROUGH_REPETITIONS if thorough else USUAL_REPETITIONS, on_progress=remark
    )
    write_fingerprint(file, found)
    noise = (
        "quiet: the same answer each time"
        if found.is_quiet
        else f"noisy: two answers differ by {found.noise:.2g} nats on average"
    )
    print(
        f"{file}: {found.model} at {found.url}, {len(found.prompts)} prompts, {found.repetitions} times each; {noise}"
    )
    return 0


@fingerprint.command(cls=SectionedCommand, short_help="Check a server against a record.")
@click.argument("file", type=_FILE)
@click.option("--base-url", required=True, help="Server's address, with or without /v1.", metavar="URL")
@click.option("--model", help="Name under which the server serves the model.  [default: the record's]", metavar="NAME")
@click.option(
    "--noise",
    multiple=True,
    type=_FILE,
    help="Fingerprint of the same model that counts as healthy: another precision or machine. Repeatable.",
)
@click.option("--tolerate", type=float, default=0.0, help="Mean divergence that counts as noise.", metavar="NATS")
@click.option(
    "--size",
    type=float,
    help="Mean divergence from which on a change matters.  [default: five times the noise, at least 0.001]",
    metavar="NATS",
)
@click.option("--alpha", type=float, default=0.001, show_default=True, help="Greatest chance of a wrong 'different'.")
@click.option("--beta", type=float, default=0.001, show_default=True, help="Greatest chance of a wrong 'same'.")
@click.option("--requests", type=int, default=200, show_default=True, help="Most requests.", metavar="N")
@click.option("--seed", type=int, help="Of the order of prompts.  [default: another each time]", metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
def check(
    file: Path,
    base_url: str,
    model: str | None,
    noise: tuple[Path, ...],
    seed: int | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Ask a server for first tokens until it is decided whether it is still the model of FILE.

    Exit code 0: same; 1: different; 3: inconclusive.

    \b
    Example:
      assay fingerprint check my-model.fingerprint.json --base-url http://localhost:8000
    """
    import secrets

    import msgspec

    from assay._util.text import printable
    from assay.identity import IdentityOptions, check_fingerprint, read_fingerprint
    from assay.types import ModelSpec

    record = read_fingerprint(file)
    asked = {name: options[name] for name in ("tolerate", "size", "alpha", "beta", "requests")}
    chosen = IdentityOptions(seed=secrets.randbelow(2**31) if seed is None else seed, **asked)
    spec = ModelSpec(base_url=base_url, model=model or record.model, endpoint=record.endpoint, seed=record.seed)
    result = check_fingerprint(record, with_server_options(spec, options), chosen, list(map(read_fingerprint, noise)))
    if as_json:
        print(msgspec.json.encode(result).decode())
        return result.verdict.exit_code
    print(f"{result.verdict.upper()}  {printable(result.reason, 1000)}")
    for each in result.largest if result.verdict != "same" else ():
        words = f"{each.recorded!r} was likeliest, now {each.found!r}" if each.recorded != each.found else "same token"
        print(f"  {each.divergence:.2g}  {printable(each.prompt)}: {printable(words)}")
    return result.verdict.exit_code
