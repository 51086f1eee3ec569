"""``assay show``: a run's samples, one after another."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING

import click

from assay.cli.remarks import remark, remark_partial_runs
from assay.types import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from assay.runs.sample_choice import ChosenSample


@click.command(short_help="Look at a run's samples: prompts, answers, what was extracted, scores.")
@click.argument("run", metavar="RUN")
@click.option("--task", "tasks", multiple=True, help="Only this task. May be repeated.", metavar="NAME")
@click.option("--doc", "doc_ids", multiple=True, type=int, help="Only this document. May be repeated.", metavar="ID")
@click.option(
    "--outcome",
    "outcomes",
    multiple=True,
    type=click.Choice([outcome.value for outcome in Outcome]),
    help="Only samples with this outcome. May be repeated.",
)
@click.option("--failed", is_flag=True, help="Only samples without a score: --outcome failed.")
@click.option("--wrong", is_flag=True, help="Only samples with a score below the best.")
@click.option("--flipped", is_flag=True, help="Only samples whose score changed against --baseline.")
@click.option("--baseline", help="An earlier run; its answers are shown where the score changed.", metavar="RUN")
@click.option("--containing", help="Only samples with this text in an answer or its reasoning.", metavar="TEXT")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many samples.", metavar="N")
@click.option("--full", is_flag=True, help="Whole prompts and answers.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def show(
    run: str,
    tasks: tuple[str, ...],
    doc_ids: tuple[int, ...],
    outcomes: tuple[str, ...],
    failed: bool,
    wrong: bool,
    flipped: bool,
    baseline: str | None,
    containing: str | None,
    limit: int | None,
    full: bool,
    as_json: bool,
) -> None:
    """Page through the samples of a finished run, Assay's or lm-eval's.

    RUN is a results file, a samples file or a folder (its newest run), last or last~1. All conditions given must hold.

    \b
    Example:
      assay show results/my-model --outcome truncated --limit 5
    """
    from assay.runs.sample_choice import SampleChoice, read_samples

    choice = SampleChoice(
        tasks=tasks,
        doc_ids=doc_ids,
        outcomes=(*map(Outcome, outcomes), *((Outcome.FAILED,) if failed else ())),
        wrong=wrong,
        flipped=flipped,
        containing=containing,
    )
    remark_partial_runs(run, baseline)
    chosen = islice(read_samples(run, choice, baseline=baseline), limit)
    if as_json:
        _print_json(chosen)
    else:
        _page(chosen, full=full)


def _print_json(chosen: Iterable[ChosenSample]) -> None:
    from assay._util.json_text import json_line

    for sample, flips in chosen:
        print(json_line({"sample": sample, "flips": flips}))


def _page(chosen: Iterator[ChosenSample], *, full: bool) -> None:
    """Print through the user's pager on a terminal; each sample is read only when the pager asks for it."""
    first = next(chosen, None)
    if first is None:
        remark("no sample of the run matches")
        return
    if sys.stdout.isatty():
        click.echo_via_pager(_rendered(first, chosen, full=full))
        return
    for text in _rendered(first, chosen, full=full):
        print(text, end="")


def _rendered(first: ChosenSample, others: Iterator[ChosenSample], *, full: bool) -> Iterator[str]:
    from itertools import chain

    from assay.cli.consoles import OutputConsole
    from assay.reports.samples import sample_text

    console = OutputConsole()
    for sample in chain((first,), others):
        if console.color_system is None:
            yield f"{sample_text(sample, full=full).plain}\n"
            continue
        with console.capture() as captured:
            console.print(sample_text(sample, full=full), soft_wrap=True)
        yield captured.get()
