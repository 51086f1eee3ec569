"""Everything that a model may write becomes JSON that a strict reader takes."""

from __future__ import annotations

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from assay._util.json_text import as_json, json_line
from assay.types import Answer

TEXTS = st.text(st.characters(codec=None), max_size=5)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(DATA)
def test_data_comes_back(value: object) -> None:
    assert json.loads(as_json(value)) == value


def test_structs_and_numbers_without_json_beside_lone_surrogates() -> None:
    said = {"answer": Answer(text="\ud800", logprob=float("-inf")), "raw": msgspec.Raw(b'{"a": NaN}'), "pair": (1, "x")}
    read = json.loads(json_line(said), parse_constant=lambda name: f"no JSON: {name}")
    assert read["answer"]["text"] == "\ud800"
    assert read["answer"]["logprob"] is None
    assert read["raw"] == {"a": None}
    assert read["pair"] == [1, "x"]
