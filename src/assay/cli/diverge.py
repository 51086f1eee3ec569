"""``assay diverge``: where do two servers part?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.remarks import remark
from assay.cli.sections import SectionedCommand
from assay.cli.server_options import server_options, with_server_options
from assay.types import LOCAL_PREFIX

if TYPE_CHECKING:
    from assay.identity.divergence.prompts import NamedPrompt
    from assay.types import EndpointKind, ModelSpec

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(cls=SectionedCommand, short_help="Read the same answers with two servers, and say where they part.")
@click.option("--reference", required=True, help="Server, or a file of --save-reference.", metavar="URL|FILE")
@click.option(
    "--candidate", "candidates", required=True, multiple=True, help="Server. Repeatable.", metavar="[NAME=]URL"
)
@click.option("--model", help="Name under which the servers serve the model.", metavar="NAME")
@click.option("--reference-model", help="The reference's name of it, if another.", metavar="NAME")
@click.option("--completions", is_flag=True, help="Ask /v1/completions with plain text instead of chat.")
@click.option("--prompts", type=_FILE, help="Prompts, one a line: text, JSON text, or JSON messages.", metavar="FILE")
@click.option("--from", "run", help="Take the prompts from a run's samples.", metavar="RUN")
@click.option("--flipped", is_flag=True, help="With --from: samples whose score changed against --baseline.")
@click.option("--failed", is_flag=True, help="With --from: samples without a score.")
@click.option("--wrong", is_flag=True, help="With --from: samples with a score below the best.")
@click.option("--baseline", help="With --flipped: the earlier run.", metavar="RUN")
@click.option("-n", "count", type=click.IntRange(min=1), default=20, show_default=True, help="Most prompts.")
@click.option("--tokens", type=int, default=24, show_default=True, help="Most tokens of an answer.", metavar="N")
@click.option(
    "--at-once",
    type=int,
    default=8,
    show_default=True,
    help="Read again, so many prompts at once; 0: do not.",
    metavar="N",
)
@click.option("--at-most", type=float, help="Mean divergence that a candidate may have.", metavar="NATS")
@click.option("--noise-reference", help="Server of another healthy build: its error counts as noise.", metavar="URL")
@click.option("--alpha", type=float, default=0.05, show_default=True, help="Greatest chance of a wrong verdict.")
@click.option("--save-reference", type=_FILE, help="Keep the reference's answers.", metavar="FILE")
@click.option("--bundle", type=click.Path(path_type=Path, file_okay=False), help="Write a repro here.", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@server_options
def diverge(
    reference: str,
    candidates: tuple[str, ...],
    model: str | None,
    reference_model: str | None,
    completions: bool,
    noise_reference: str | None,
    save_reference: Path | None,
    bundle: Path | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Let a reference answer, read its answers with each candidate token by token, and say how far apart they are.

    Exit code 0: measured, or same; 1: different; 3: inconclusive. Judged by --at-most or --noise-reference.

    \b
    Example:
      assay diverge --reference http://bf16:8000 --candidate fp8=http://fp8:8000 --model my-model
    """
    import msgspec

    from assay._util.storage import refuse_unwritable
    from assay.identity import DivergenceOptions, diverge, read_reference, write_reference
    from assay.identity.divergence.bundle import write_bundle
    from assay.reports.divergence import divergence_text
    from assay.types import ModelSpec

    endpoint: EndpointKind = "completions" if completions else "chat"
    if save_reference is not None:
        refuse_unwritable(save_reference)

    def server(url: str, name: str | None) -> ModelSpec:
        if name is None:
            raise click.UsageError("Missing option '--model'.")
        return with_server_options(ModelSpec(base_url=url, model=name, endpoint=endpoint), options)

    source = (
        server(reference, reference_model or model)
        if _is_url(reference)
        else read_reference(_reference_file(reference))
    )
    report = diverge(
        source,
        [(name, server(url, model)) for name, url in map(_named, candidates)],
        _prompts(endpoint, **options) if _is_url(reference) else (),
        DivergenceOptions(**{name: options[name] for name in ("tokens", "at_once", "at_most", "alpha")}),
        None if noise_reference is None else server(noise_reference, model),
        on_progress=remark,
    )
    if save_reference is not None:
        write_reference(save_reference, report.reference)
    if bundle is not None:
        for each in report.candidates:
            write_bundle(bundle / each.name if len(report.candidates) > 1 else bundle, report, each)
    print(msgspec.json.encode(report).decode() if as_json else divergence_text(report))
    return report.exit_code


def _prompts(
    endpoint: EndpointKind,
    *,
    prompts: Path | None,
    run: str | None,
    flipped: bool,
    failed: bool,
    wrong: bool,
    baseline: str | None,
    count: int,
    **_: Any,
) -> list[NamedPrompt]:
    from assay.identity.divergence.prompts import own_prompts, prompts_of_file, prompts_of_run
    from assay.runs.sample_choice import SampleChoice
    from assay.types import Outcome

    if prompts is not None and run is not None:
        raise click.UsageError("--prompts and --from both say what to ask; give one.")
    if run is not None:
        choice = SampleChoice(wrong=wrong, flipped=flipped, outcomes=(Outcome.FAILED,) if failed else ())
        return prompts_of_run(run, choice, count, endpoint, baseline)
    if flipped or failed or wrong or baseline:
        raise click.UsageError(
            "--flipped, --failed, --wrong and --baseline choose samples of a run; name it with --from."
        )
    return own_prompts(count, endpoint) if prompts is None else prompts_of_file(prompts, count, endpoint)


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _reference_file(text: str) -> Path:
    from assay.errors import UnsupportedTaskError

    if text.startswith(LOCAL_PREFIX):
        raise UnsupportedTaskError(
            f"cannot read with {text} in this process; serve it (vllm serve) and give its URL, or keep its answers "
            "with --save-reference"
        )
    place = Path(text)
    if place.is_dir() or place.name.startswith(("results_", "samples_")):
        raise UnsupportedTaskError(
            f"cannot compare with {text}, because a run keeps texts without log-probabilities; give the server that "
            f"answered it as --reference, with --from {text}"
        )
    return place


def _named(text: str) -> tuple[str, str]:
    """A candidate's name and URL: an address holds no equals sign before its scheme."""
    name, equals, url = text.partition("=")
    return (name, url) if equals and "://" not in name else (text, text)
