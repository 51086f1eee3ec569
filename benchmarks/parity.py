"""Assay beside the real lm-eval, on every task whose data is at hand; and every task name there is, loaded.

The tables of docs/parity.md::

    python -m benchmarks.parity --data-dir DIR --write docs/parity.md

DIR holds data sets as on the Hugging Face hub (``DIR/<owner>/<name>``). lm-eval splits prompts into tokens by
transformers, which Assay does not need; where it is not installed, ``--packages`` names a folder that has it, for
lm-eval's process alone. The exit code is 1 if something differs, or a task is refused, for a reason that is not known.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.reports.markdown import table
from benchmarks.child_packages import FOR_LM_EVAL, packages_for_children
from benchmarks.pages import publish
from benchmarks.vocabulary import write_tokenizer
from tests.lm_eval_files import Difference
from tests.parity.cases import batches, write_own_tasks
from tests.parity.differential import Comparison, Place, compare
from tests.parity.sweep import Finding, Reason, broken_groups, sweep

LIMIT = 8
_EXAMPLES = 3
"""Names shown of a kind."""


@dataclass(frozen=True)
class Outcome:
    """One part's tables by name, and what nobody can explain."""

    sections: dict[str, str]
    problems: list[str]


def main() -> None:
    logging.disable(logging.WARNING)  # lm-eval's, for the authors of its tasks
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("ASSAY_DATA_DIR", "../shared/data/datasets"))
    parser.add_argument("--only", choices=("differential", "sweep"))
    parser.add_argument("--tasks", default="", help="of the differential's tasks only these, separated by commas")
    parser.add_argument("--limit", type=int, default=LIMIT, help=f"documents a task in the differential ({LIMIT})")
    parser.add_argument("--processes", type=int, default=2, help="of the sweep")
    parser.add_argument("--packages", type=Path, default=FOR_LM_EVAL)
    parser.add_argument("--write", type=Path, help="page whose sections are replaced; else they are printed")
    arguments = parser.parse_args()
    data_dir = Path(arguments.data_dir).resolve()
    if not data_dir.is_dir():
        parser.error(f"--data-dir {data_dir} is no folder")
    if arguments.write and arguments.tasks:
        parser.error("--write is for whole tables; without --tasks")
    outcomes = []
    if arguments.only != "differential":
        outcomes.append(look_at_all(data_dir, arguments.processes))
    if arguments.only != "sweep":
        with packages_for_children(arguments.packages):
            only = [name for name in arguments.tasks.split(",") if name]
            outcomes.append(compare_all(data_dir, only, arguments.limit))
    publish(itertools.chain.from_iterable(outcome.sections.items() for outcome in outcomes), arguments.write)
    problems = [problem for outcome in outcomes for problem in outcome.problems]
    print(*problems[:100], sep="\n")
    sys.exit(1 if problems else 0)


# -- the differential -------------------------------------------------------------------------------------------------


def compare_all(data_dir: Path, only: Sequence[str], limit: int) -> Outcome:
    """Run all batches by both engines."""
    rows: list[list[str]] = []
    problems: list[str] = []
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="assay-parity-") as folder:
        scratch = Path(folder)
        write_own_tasks(scratch / "tasks")
        tokenizer = write_tokenizer(scratch / "tokenizer", data_dir)
        for number, batch in enumerate(batches(tokenizer, only)):
            place = Place(data_dir=data_dir, scratch=scratch / str(number), include_path=scratch / "tasks")
            comparison = compare(batch, place, limit)
            seconds = ", ".join(f"{engine} {value:.0f} s" for engine, value in comparison.seconds.items())
            progress(
                f"{batch.endpoint}, {len(batch.tasks)} names: {len(comparison.differences)} differences; {seconds}"
            )
            rows += _rows(comparison)
            problems += [f"{difference.task}: {difference}" for difference in comparison.differences]
            totals += Counter(
                tasks=len(comparison.documents),
                documents=comparison.documents.total(),
                requests=comparison.requests.total(),
            )
    total = ["all", str(totals["tasks"]), "", "", str(totals["documents"]), str(totals["requests"]), ""]
    headings = ("task or group", "tasks", "asked by", "settings", "documents", "requests", "lm-eval and Assay")
    return Outcome({"differential": "\n".join(table(headings, [*rows, total]))}, problems)


def _rows(comparison: Comparison) -> Iterator[list[str]]:
    batch = comparison.batch
    settings = [] if batch.num_fewshot is None else [f"{batch.num_fewshot}-shot"]
    settings += [] if batch.fewshot_as_multiturn else ["one turn"]
    endpoint = batch.endpoint if batch.tokenizer is None else f"{batch.endpoint}, as tokens"
    by_task: defaultdict[str | None, list[Difference]] = defaultdict(list)
    for difference in comparison.differences:
        by_task[difference.task].append(difference)
    for name in batch.tasks:
        tasks = comparison.subtasks[name]
        found = [difference for task in {name, *tasks} for difference in by_task.pop(task, ())]
        documents = sum(comparison.documents[task] for task in tasks)
        requests = sum(comparison.requests[task] for task in tasks)
        counts = [str(documents), str(requests)]
        yield [name, str(len(tasks)), endpoint, ", ".join(settings), *counts, _verdict(found)]
    for task, found in by_task.items():
        yield [task or "the run as a whole", "", endpoint, ", ".join(settings), "", "", _verdict(found)]


def _verdict(found: Sequence[Difference]) -> str:
    return f"differ in {len(found)} places: {found[0]}" if found else "equal"


# -- the sweep --------------------------------------------------------------------------------------------------------


def look_at_all(data_dir: Path, processes: int) -> Outcome:
    """Load every task, group and tag."""
    started = time.monotonic()
    findings = list(sweep(data_dir, processes))
    progress(f"{len(findings)} tasks loaded or refused in {time.monotonic() - started:.0f} s")
    groups = broken_groups()
    problems = [f"{found.name}: {found.message}" for found in findings if found.reason is Reason.UNEXPLAINED]
    problems += [f"{group.name}: {group.message}" for group in groups if not group.is_lm_evals]
    shared = ", ".join(f"`{group.name}`" for group in groups if group.is_lm_evals)
    sections = {
        "sweep": "\n".join(_kinds(findings)),
        "broken-tasks": "\n".join(_broken(findings)),
        "broken-groups": f"Groups that lm-eval cannot load either: {shared or 'none'}.",
    }
    return Outcome(sections, problems)


def _kinds(findings: Sequence[Finding]) -> list[str]:
    endpoints = ("chat or completions", "completions", "unknown")
    rows = []
    for reason in Reason:
        of_kind = [found for found in findings if found.reason is reason]
        counts = Counter(found.endpoint for found in of_kind)
        one_a_family = list({found.family: found.name for found in of_kind}.values())
        examples = ", ".join(one_a_family[:: max(1, len(one_a_family) // _EXAMPLES)][:_EXAMPLES])
        if of_kind or reason is Reason.UNEXPLAINED:
            rows.append([reason, str(len(of_kind)), *(str(counts[endpoint]) for endpoint in endpoints), examples])
    asked_by = ("chat or completions", "only completions", "unknown")
    return table(("", "tasks", *asked_by, "for example"), rows)


def _broken(findings: Sequence[Finding]) -> list[str]:
    rows = []
    for found in findings:
        if found.reason is Reason.BROKEN:
            raised = found.message.partition("cannot be loaded: ")[2].partition(" (")[0]
            rows.append([found.name, re.sub(r"/\S*/(?=lm_eval/tasks/)", "", raised)])
    return table(("task", "what lm-eval's loader raises as well"), rows)


def progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
