"""Sample lines say what lm-eval's say, and hash what lm-eval hashes, whoever encodes which part of them."""

from __future__ import annotations

import hashlib
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.utils import handle_non_serializable

from assay.scoring.sample_lines import SampleLines
from assay.types import Sample

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def lm_eval_json(value: Any, **how: Any) -> str:
    return json.dumps(value, default=handle_non_serializable, ensure_ascii=False, **how)


def line_of(doc: dict[str, Any], metrics: dict[str, Any], said: str = "said", target: str = "right") -> Any:
    args = ("asked", {"until": ["\n"], "temperature": 1e-05})
    instance = SimpleNamespace(doc=doc, args=args, arguments=args, resps=[said])
    sample = Sample("task", 3, doc, [instance], [])
    task = SimpleNamespace(doc_to_target=lambda _: target)
    line = SampleLines.of(sample, task, doc).line("none", [said], metrics)
    assert line.endswith(b"}\n")
    return json.loads(line)


@given(VALUES, VALUES)
@pytest.mark.parametrize("number", [1e16, 1e-05, 1.5e-07, 123456789012345680.0, 0.0001, 9999999999999998.0, -0.0, 1e22])
def test_any_value_is_written_and_hashed_as_lm_eval_does(number: float, any_value: Any, any_metric: Any) -> None:
    doc = {"question": "?", "number": number, "numbers": [1, number], "any": any_value}
    line = line_of(doc, {"acc": number, "any_metric": any_metric})
    assert line["doc_hash"] == hashlib.sha256(lm_eval_json(doc, indent=2).encode()).hexdigest()
    assert line["arguments"] == {"gen_args_0": {"arg_0": "asked", "arg_1": {"until": ["\n"], "temperature": 1e-05}}}
    assert lm_eval_json(line["doc"]) == lm_eval_json(doc)
    assert lm_eval_json([line["acc"], line["any_metric"]]) == lm_eval_json([number, any_metric])


def test_lone_surrogates_of_the_model_stay_visible() -> None:
    doc = {"question": "?", "numbers": [1e-05]}
    line = line_of(doc, {"acc": 1.0, "rest": "\udfff"}, said="I say \ud800")
    assert line["doc"] == doc
    assert line["resps"] == [["I say \ud800"]]
    assert line["filtered_resps"] == ["I say \ud800"]
    assert (line["acc"], line["rest"], line["target"]) == (1.0, "\udfff", "right")
    assert line["arguments"]["gen_args_0"]["arg_1"]["temperature"] == 1e-05
