from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import FileFormatError
from assay.helm.adaptation import AdapterSpec, GeneratedOutput, Request, RequestState, ScenarioState
from assay.helm.run_spec import RunSpec
from assay.helm.scenario import PerturbationDescription, Scenario
from assay.helm.stats import PerInstanceStats, Stat
from assay.helm.structs import HelmStruct, dump_json


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("name", "record"), [("run_spec", RunSpec), ("scenario", Scenario), ("scenario_state", ScenarioState)]
)
def test_a_file_comes_back_byte_for_byte(oracle: Path, name: str, record: type[HelmStruct]) -> None:
    text = (oracle / f"{name}.json").read_bytes()
    assert record.from_json(text).to_json() == text


@pytest.mark.oracle
@pytest.mark.parametrize(("name", "record"), [("stats", Stat), ("per_instance_stats", PerInstanceStats)])
def test_statistics_come_back_byte_for_byte(oracle: Path, name: str, record: type[HelmStruct]) -> None:
    text = (oracle / f"{name}.json").read_bytes()
    records = [record.from_builtins(value) for value in json.loads(text)]
    assert dump_json([one.to_builtins() for one in records]) == text


def test_unknown_keys_are_kept_at_every_level() -> None:
    value = {"text": "a", "logprob": 0, "tokens": [{"text": "a", "logprob": -1.5, "rank": 3}], "novel": {"x": None}}
    assert GeneratedOutput.from_builtins(value).to_builtins() == value
    assert GeneratedOutput.from_json(json.dumps(value)).to_json() == json.dumps(value, indent=2).encode()


def test_a_default_that_the_file_leaves_out_is_not_written() -> None:
    old = Request.from_json('{"model": "openai/davinci", "prompt": "p"}')
    assert old.max_tokens == 100
    assert old.to_builtins() == {"model": "openai/davinci", "prompt": "p"}
    assert Request(model="m").to_builtins()["model_deployment"] == ""


def test_only_records_drop_none() -> None:
    output = GeneratedOutput("a", 0, [], finish_reason={"reason": None})
    assert output.to_builtins() == {"text": "a", "logprob": 0, "tokens": [], "finish_reason": {"reason": None}}


def test_an_adapter_without_deployments_is_of_an_old_helm() -> None:
    assert AdapterSpec.from_json('{"method": "generation", "model": "m"}').predates_deployments
    assert not AdapterSpec.from_json(AdapterSpec(method="generation").to_json()).predates_deployments


def test_perturbations_with_other_parameters_differ() -> None:
    typos = {"name": "typos", "robustness": True, "fairness": False, "computed_on": "perturbed"}
    light, heavy = (PerturbationDescription.from_builtins({**typos, "prob": prob}) for prob in (0.01, 0.1))
    assert light != heavy
    assert light == PerturbationDescription.from_builtins({**typos, "prob": 0.01})
    assert len({light, heavy}) == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(), inside, max_size=3),
    max_leaves=20,
)


@given(json_values)
def test_text_is_as_python_writes_it(value: Any) -> None:
    assert dump_json(value) == json.dumps(value, indent=2).encode()


@given(st.text(st.characters(exclude_categories=[])), st.integers() | st.floats(allow_nan=False))
def test_numbers_and_any_text_survive(text: str, logprob: float) -> None:
    written = json.dumps({"text": text, "logprob": logprob, "tokens": []}, indent=2).encode()
    assert GeneratedOutput.from_json(written).to_json() == written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a", "logprob": 0, "tok', "is incomplete: it was cut off at byte 28"),
        ('{"text": "a", "logprob"; 0}', "is damaged at byte 23"),
        ('{"text": "a", "logprob": 0}', "GeneratedOutput has no 'tokens'"),
        ('{"text": "a", "logprob": "0", "tokens": []}', r"logprob: expected `int \| float`, got `str`"),
        ('{"text": "a", "logprob": 0, "tokens": [{"text": 1, "logprob": 0}]}', r"tokens\[0\].text: expected `str`"),
        ('{"text": "a", "logprob": 0, "tokens": {}}', "expected a list of Token, but found an object"),
        ("[]", "expected GeneratedOutput, an object, but found a list"),
        (b"\xff\xfe", "is not UTF-8 at byte 0"),
        ("[" * 100_000, "nested too deeply|cut off"),
    ],
)
def test_a_bad_record_is_refused_in_one_line(text: str | bytes, message: str) -> None:
    with pytest.raises(FileFormatError, match=message) as refusal:
        GeneratedOutput.from_json(text, "state.json")
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("state.json")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (r'{"text": "a", "logprob": "\ud800", "tokens": []}', "logprob: unexpected string"),
        (r'{"text": "a", "logprob": 0, "tokens": ["\ud800"]}', r"tokens\[0\]: expected Token"),
    ],
)
def test_half_a_character_where_no_text_is_expected(record: str, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        GeneratedOutput.from_json(record)


def test_a_request_without_a_result_is_not_answered() -> None:
    state = {
        "instance": {"input": {"text": "q"}, "references": []},
        "train_trial_index": 0,
        "request": {},
        "num_train_instances": 0,
        "prompt_truncated": False,
    }
    empty = {"success": False, "embedding": [], "completions": [], "cached": False}
    full = {**empty, "completions": [{"text": "", "logprob": 0, "tokens": []}]}
    assert not RequestState.from_builtins(state).is_answered
    assert not RequestState.from_builtins({**state, "result": empty}).is_answered
    assert RequestState.from_builtins({**state, "result": full}).is_answered
