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
@click.option("--with-texts", is_flag=True, help="Keep the answers' texts too: readable flips, a much larger file.")
def save(run: str, file: Path, with_texts: bool) -> None:
    """Write the scores, hashes and versions of RUN to FILE, made to be kept in git.

    RUN is a results file, a samples file or a folder of results, of Assay or lm-eval.

    \b
    Example:
      assay baseline save results/my-model baselines/my-model.json
    """
    from assay._util.text import printable
    from assay.errors import SpecificationError
    from assay.runs.baseline import save_baseline
    from assay.runs.files import read_run, whole_run_words

    read = read_run(run)
    try:
        save_baseline(read, file, with_texts=with_texts)
    except SpecificationError as error:
        if not read.stopped_early:
            raise
        raise SpecificationError(f"{error}{whole_run_words(read.source)}") from None
    left_out = [f"{task.name} {key}" for task in read.tasks.values() for key in task.values if key not in task.scores]
    if left_out:
        remark(f"not per document, so left out: {', '.join(left_out)}")
    tasks = f"{len(read.tasks)} tasks" if len(read.tasks) != 1 else printable(next(iter(read.tasks)))
    print(f"{file}: {read.documents} documents of {tasks}, {file.stat().st_size} bytes")
