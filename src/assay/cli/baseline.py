"""``assay baseline``: keep a run to compare later ones with."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.remarks import remark


@click.group(short_help="Keep a run as a small file to compare later runs with.")
def baseline() -> None:
    """Keep a run as a small file to compare later runs with."""


@baseline.command(short_help="Write a run's scores and hashes to a file.")
@click.argument("run")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--task", "tasks", multiple=True, help="Only this task or group. May be repeated.", metavar="NAME")
@click.option("--with-texts", is_flag=True, help="Keep the answers' texts too: readable flips, a much larger file.")
def save(run: str, file: Path, tasks: tuple[str, ...], with_texts: bool) -> None:
    """Write the scores, hashes and versions of RUN to FILE, made to be kept in git.

    RUN is a results file, a samples file or a folder of results, of Assay or lm-eval.

    \b
    Example:
      assay baseline save results/my-model baselines/my-model.json
    """
    from assay._util.text import printable
    from assay.runs.saving import save_baseline

    saved = save_baseline(run, file, with_texts=with_texts, tasks=tasks)
    if saved.left_out:
        remark(f"not per document, so left out: {', '.join(saved.left_out)}")
    of_tasks = f"{len(saved.tasks)} tasks" if len(saved.tasks) != 1 else printable(saved.tasks[0])
    print(f"{file}: {saved.documents} documents of {of_tasks}, {file.stat().st_size} bytes")
