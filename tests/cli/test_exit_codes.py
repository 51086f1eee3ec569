"""One table of all exit codes, which the errors and the help keep to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import errors
from assay.cli.exit_codes import EXIT_CODES
from assay.errors import AssayError, RunInterrupted
from assay.results.check_results import Verdict

TABLE = Path(__file__).parents[2] / "docs" / "exit-codes.md"
SIGNALS = (130, 143)


def rows() -> dict[int, list[str]]:
    """The table's cells by exit code."""
    table = [line.strip("|").split("|") for line in TABLE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    return {int(code): [cell.strip() for cell in rest] for codes, *rest in table[1:] for code in numbers(codes)}


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def all_errors(kind: type[AssayError] = AssayError) -> Iterator[type[AssayError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from all_errors(child)


@pytest.mark.parametrize("kind", [kind for kind in all_errors() if kind is not RunInterrupted])
def test_every_error_ends_with_the_code_in_whose_row_it_or_its_branch_stands(kind: type[AssayError]) -> None:
    *_, named = rows()[kind.exit_code]
    branch = [one.__name__ for one in kind.__mro__ if getattr(one, "exit_code", None) == kind.exit_code]
    assert any(f"`{name}`" in named for name in branch), f"{kind.__name__} in the row of {kind.exit_code}"


def test_an_interruption_has_the_code_that_a_shell_gives_the_signal() -> None:
    assert RunInterrupted("").exit_code == 130
    for code in SIGNALS:
        assert "`RunInterrupted`" in rows()[code][-1]


def test_the_table_names_no_error_that_is_not_there() -> None:
    named = {name for cells in rows().values() for name in re.findall(r"`(\w+Error|\w+Interrupted)`", cells[-1])}
    assert all(issubclass(getattr(errors, name), AssayError) for name in named)


def test_every_verdict_and_every_code_of_the_help_has_a_row_and_no_row_is_left_out_there() -> None:
    helped = [code for line in EXIT_CODES.splitlines()[2:] for code in numbers(re.split(r"  +\b", line.strip())[0])]
    assert helped == list(rows())
    assert {verdict.exit_code for verdict in Verdict} <= set(rows())
