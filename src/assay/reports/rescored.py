"""The outcome of scoring a run again, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay._util.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.rescoring.rescore import Rescored


def rescored_lines(rescored: Rescored) -> Iterator[str]:
    """The verdict first, then what else changed, then where the results are."""
    if rescored.differences:
        first = rescored.differences[0]
        yield printable(
            f"{len(rescored.differences)} values differ from the run's, "
            f"such as {first.task} {first.key}: {_shown(first.before)} -> {_shown(first.now)}"
        )
    elif not rescored.lost:
        yield "every value is as the run recorded it"
    if rescored.lost:
        yield f"the journal lacks answers that the run had (assay journal check): {_by_task(rescored.lost)}"
    if rescored.changed_prompts:
        yield f"other prompts now (the answers are to the old ones): {_by_task(rescored.changed_prompts)}"
    if rescored.left_out:
        yield f"without a score now: {_by_task(rescored.left_out)}"
    if rescored.versions:
        changes = (f"{name} {before} -> {now}" for name, (before, now) in rescored.versions.items())
        yield f"versions: {', '.join(changes)}"
    if rescored.results_file is not None:
        yield f"results  {rescored.results_file}"


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _by_task(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{printable(name)} {count} documents" for name, count in counts.items())
