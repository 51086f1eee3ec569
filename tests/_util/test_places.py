"""Documents' places come back in the order of a plain dictionary of lists, whatever the order in which they came."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from assay._util.places import PlacesByDocument

entries = st.lists(st.tuples(st.integers(-3, 9) | st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**40)))


@given(entries, entries)
def test_as_a_dictionary_of_lists(first: list[tuple[int, int]], later: list[tuple[int, int]]) -> None:
    places = PlacesByDocument()
    expected: dict[int, list[int]] = {}
    for part in (first, later):
        for doc_id, offset in part:
            places.add(doc_id, offset)
            expected.setdefault(doc_id, []).append(offset)
        assert places.documents() == sorted(expected)
        assert {doc_id: list(places.of(doc_id)) for doc_id in expected} == expected
    assert not places.of(next(free for free in range(len(expected) + 1) if free not in expected))
