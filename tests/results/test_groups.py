"""What lies in a group."""

import pytest

from assay.results.groups import leaves, own_ancestor

MEMBERS = {"all": ["sums", "words", "alone"], "sums": ["plus", "minus"], "words": ["minus", "spell"], "alone": []}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all", ["plus", "minus", "spell", "alone"]),
        ("words", ["minus", "spell"]),
        ("alone", ["alone"]),
        ("plus", ["plus"]),
    ],
)
def test_leaves_are_tasks_of_subgroups_too_each_once(name: str, expected: list[str]) -> None:
    assert leaves(name, MEMBERS) == expected


def test_a_group_in_itself_is_found() -> None:
    assert own_ancestor(MEMBERS) is None
    assert own_ancestor({**MEMBERS, "words": ["spell"], "spell": ["all"]}) in ("all", "words", "spell")
