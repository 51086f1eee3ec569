"""Bodies in the shape that a server wants, and headers from wherever they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cli import main
from assay.client.headers import request_headers
from assay.client.request_shape import RequestShape, parse_extra_body, parse_rename, shape_of
from assay.client.user_headers import header_values, parse_header
from assay.errors import SpecificationError
from assay.specification import validate_model
from assay.types import ModelSpec

NAMES = st.text("abcdef", min_size=1, max_size=3)


def spec(**fields: Any) -> ModelSpec:
    return ModelSpec(base_url="http://localhost:1", model="m", **fields)


@given(
    st.dictionaries(NAMES, st.integers()),
    st.dictionaries(NAMES, NAMES),
    st.lists(NAMES),
    st.dictionaries(NAMES, st.none()),
)
def test_dropped_fields_are_gone_and_extra_ones_there(
    body: dict[str, int], rename: dict[str, str], drop: list[str], extra: dict[str, None]
) -> None:
    shaped = json.loads(RequestShape(rename=rename, drop=drop, extra=extra).applied(json.dumps(body).encode()))
    assert extra.items() <= shaped.items()
    assert not set(drop) & (shaped.keys() - extra.keys())
    assert not {old for old in rename if old not in rename.values()} & (shaped.keys() - extra.keys())


def test_no_shape_leaves_the_body_to_the_byte() -> None:
    assert RequestShape().applied(b'{"a":  1}') == b'{"a":  1}'
    assert RequestShape().identity == b""


def test_the_users_changes_come_after_the_dialects() -> None:
    shape = shape_of(spec(dialect="openai", rename_fields={"max_tokens": "n_predict"}, extra_body={"temperature": 0.3}))
    assert shape.rename == {"max_tokens": "n_predict"}
    assert shape.extra == {"temperature": 0.3}


@pytest.mark.parametrize("model", ["o1", "o3-mini", "gpt-5", "gpt-4.5"])
def test_openais_reasoning_models_are_known_as_lm_eval_knows_them(model: str) -> None:
    shape = shape_of(ModelSpec(base_url="http://localhost:1", model=model, dialect="openai"))
    assert (shape.drop, shape.extra) == (("stop",), {"temperature": 1})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"drop_fields": ("messages",)}, "'messages', which is what is asked"),
        ({"rename_fields": {"prompt": "input"}}, "'prompt', which is what is asked"),
        ({"rename_fields": {"seed": "messages"}}, "rename_fields replaces 'messages', which is what is asked"),
        ({"extra_body": {"prompt": "x"}}, "'prompt', which is what is asked"),
        ({"extra_body": {"a": float("nan")}}, "cannot be sent as JSON"),
        ({"headers": {"X Y": "1"}}, "cannot be the name of a header"),
        ({"headers": {"X": "a\r\nb"}}, "characters that cannot be sent"),
        ({"headers": {"X": "$NOT_SET_ANYWHERE"}}, "NOT_SET_ANYWHERE, for the header X, is not set"),
        ({"headers": {"X": "@/no/such/file"}}, "cannot read /no/such/file, for the header X"),
        ({"headers": {"Content-Length": "1"}}, "is the client's own affair"),
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecificationError, match=says.replace("(", "\\(")):
        validate_model(spec(**fields))


@pytest.mark.parametrize("text", ["X-Team=inference", "X-Team: inference", "X-Team = inference"])
def test_headers_are_read_as_assignments_and_as_curl_has_them(text: str) -> None:
    assert parse_header(text) == ("X-Team", "inference")


@pytest.mark.parametrize("text", ["X-Team", "=x", "a b=c", ""])
def test_other_headers_are_refused_without_what_may_be_secret(text: str) -> None:
    with pytest.raises(SpecificationError, match="write NAME=VALUE"):
        parse_header(text)


def test_values_come_from_variables_in_either_spelling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0k3n")
    assert header_values({"A": "$TOKEN", "B": "${TOKEN}"}) == {"A": "t0k3n", "B": "t0k3n"}


def test_a_variable_may_follow_the_scheme_of_an_authorisation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "t0k3n-0123456789")
    headers = request_headers(spec(headers={"Authorization": "Bearer $TOKEN"}), "key")
    assert headers.fields["Authorization"] == "Bearer t0k3n-0123456789"
    assert headers.redact("you sent t0k3n-0123456789") == "you sent ***"


def test_a_long_value_is_shown_nowhere_whatever_its_header_is_called() -> None:
    headers = request_headers(spec(headers={"X-Team": "0123456789abcdef", "Host": "a.long.host.example"}), "key")
    assert headers.redact("0123456789abcdef at a.long.host.example") == "*** at a.long.host.example"


def test_a_header_of_the_users_is_sent_in_place_of_the_clients_own() -> None:
    fields = request_headers(spec(headers={"authorization": "Basic abc"}), "key").fields
    assert [name for name in fields if name.lower() == "authorization"] == ["authorization"]
    assert "Authorization" not in request_headers(spec(headers={"Authorization": ""}), "key").fields


@pytest.mark.parametrize("text", ["max_tokens", "=b", "a=", ""])
def test_a_rename_needs_both_names(text: str) -> None:
    with pytest.raises(SpecificationError, match="write OLD=NEW"):
        parse_rename(text)


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_extra_fields_are_an_object(text: str) -> None:
    with pytest.raises(SpecificationError, match="extra-body"):
        parse_extra_body(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--header", "nonsense"], "the header 'nonsense' cannot be read"),
        (["--extra-body", "{"], "--extra-body cannot be read as JSON"),
        (["--rename-field", "a"], "'a' renames no field"),
        (["--dialect", "klingon"], "'klingon' is not one of"),
        (["--drop-field", "messages"], "drop_fields leaves out 'messages'"),
        (["--extra-body", '{"n": 3}'], "asks for several answers at once ('n': 3)"),
    ],
)
def test_the_command_line_says_it_in_a_line(
    arguments: list[str], says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "gsm8k", "--base-url", "http://127.0.0.1:1", "--model", "m", "--output-dir", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([*command, *arguments])
    assert ended.value.code == 2
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert says in line
