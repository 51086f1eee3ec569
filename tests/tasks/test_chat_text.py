"""Conversations become the JSON that lm-eval's client sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.tasks.chat_text import conversation_json

texts = st.text(st.characters(exclude_categories=[]), max_size=50)


def as_lm_eval(turns: list[dict[str, Any]]) -> str:
    return json.dumps(turns, ensure_ascii=False)


@given(st.lists(st.fixed_dictionaries({"role": texts, "content": texts}), max_size=4))
def test_texts_are_written_as_the_standard_library_does(turns: list[dict[str, Any]]) -> None:
    assert conversation_json(turns) == as_lm_eval(turns)


@pytest.mark.parametrize("content", [None, 7, [{"type": "text", "text": "é"}], {"text": "x"}, "\ud800"])
def test_so_are_contents_of_another_kind(content: Any) -> None:
    turns = [{"role": "user", "content": content, "prefix": True}]
    assert conversation_json(turns) == as_lm_eval(turns)
