from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import FileFormatError
from assay.helm import state_file
from assay.helm.state_file import StateFile


def _state(size: int = 3) -> dict[str, Any]:
    return {
        "adapter_spec": {"method": "generation", "num_train_trials": 1},
        "request_states": [
            {
                "instance": {"input": {"text": "\n    }," * index}, "references": [], "id": f"id{index}"},
                "train_trial_index": 0,
                "request": {"prompt": "]}"},
                "num_train_instances": 0,
                "prompt_truncated": False,
                "num_conditioning_tokens": 0,
            }
            for index in range(size)
        ],
        "annotator_specs": [{"class_name": "a", "args": {}}],
        "later": 1,
    }


@pytest.mark.oracle
def test_reading_piece_by_piece_gives_the_whole(oracle: Path) -> None:
    path = oracle / "scenario_state.json"
    assert StateFile(path).load().to_json() == path.read_bytes()


@pytest.mark.parametrize("chunk", [1, 7, 64, 1 << 20])
@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize("indent", [2, None, 4])
def test_any_layout_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, size: int, indent: int | None
) -> None:
    monkeypatch.setattr(state_file, "_CHUNK", max(chunk, 32))
    path = tmp_path / "scenario_state.json"
    path.write_text(json.dumps(_state(size), indent=indent))
    assert StateFile(path).load().to_builtins() == _state(size)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "scenario_state.json"
    text = json.dumps(_state(), indent=2).encode()
    for size in range(len(text)):
        path.write_bytes(text[:size])
        with pytest.raises(FileFormatError) as refusal:
            StateFile(path).load()
        assert "was cut off at byte" in str(refusal.value)
        assert "\n" not in str(refusal.value)


_BETWEEN = b"\n    },\n    {"
_AFTER_SPEC = b'\n  },\n  "request_states"'
_AFTER_LIST = b'\n  ],\n  "annotator_specs"'


@pytest.mark.parametrize("chunk", [32, 1 << 20])
@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        (_BETWEEN, b"\n    }\n    {", 8),
        (_BETWEEN, b"\n    },,\n    {", 7),
        (_BETWEEN, b"\n    } x,\n    {", 7),
        (_BETWEEN, b"\n    };\n    {", 6),
        (b'"request_states": [\n', b'"request_states": [,\n', 19),
        (_AFTER_SPEC, _AFTER_SPEC.replace(b",", b""), 4),
        (_AFTER_SPEC, _AFTER_SPEC.replace(b",", b",,"), 5),
        (_AFTER_LIST, _AFTER_LIST.replace(b"]", b",]"), 4),
        (b"\n    }" + _AFTER_LIST, b"\n    }," + _AFTER_LIST, 7),
        (_AFTER_LIST, _AFTER_LIST.replace(b",", b""), 4),
        (_AFTER_LIST, _AFTER_LIST.replace(b",", b",,"), 5),
        (_AFTER_LIST, _AFTER_LIST.replace(b"]", b"]]"), 4),
        (b'"later": 1\n}', b'"later": 1,\n}', 10),
        (b'"later": 1\n}', b'"later": 1\n}\n{}', 13),
        (b'"later": 1\n}', b'"later": 1\n}garbage', 12),
        (b'"later": 1\n}', b'"later": 1\n]', 10),
    ],
)
def test_broken_json_is_no_state_wherever_it_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, old: bytes, new: bytes, place: int
) -> None:
    text = json.dumps(_state(), indent=2).encode()
    assert old in text
    broken = text.replace(old, new, 1)
    with pytest.raises(json.JSONDecodeError) as error:
        json.loads(broken)
    path = tmp_path / "scenario_state.json"
    path.write_bytes(broken)
    monkeypatch.setattr(state_file, "_CHUNK", chunk)
    with pytest.raises(FileFormatError, match=rf"is damaged at byte {error.value.pos} "):
        StateFile(path).load()
    assert text.index(old) + place <= error.value.pos <= text.index(old) + place + 4


@pytest.mark.parametrize(
    ("item", "kind"), [("null", "null"), ("[]", "a list"), ('"\\n    }"', "a string"), ("3", "a number")]
)
def test_an_item_that_is_no_request_is_named(tmp_path: Path, item: str, kind: str) -> None:
    path = tmp_path / "scenario_state.json"
    for size in (0, 3):
        before = _state(size)["request_states"]
        states = [*before, json.loads(item)]
        path.write_text(json.dumps({**_state(), "request_states": states}, indent=2))
        with pytest.raises(
            FileFormatError, match=rf"request_states\[{size}\]: expected RequestState, an object, .*{kind}"
        ):
            StateFile(path).load()


def test_a_list_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scenario_state.json"
    text = json.dumps(_state(), indent=2)
    path.write_text(text.replace('"later": 1', '"request_states": []'))
    with pytest.raises(FileFormatError, match="has 'request_states' twice"):
        StateFile(path).load()


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("chunk", [32, 1 << 20])
def test_a_layout_that_changes_in_the_middle_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, chunk: int
) -> None:
    monkeypatch.setattr(state_file, "_CHUNK", chunk)
    path = tmp_path / "scenario_state.json"
    state = _state()
    state["request_states"][place]["instance"]["perturbation"] = {"name": "typos"}
    marked = {**state, "request_states": [*state["request_states"]]}
    marked["request_states"][place] = "MARK"
    path.write_text(
        json.dumps(marked, indent=2).replace(
            '"MARK"', json.dumps(state["request_states"][place], separators=(",", ":"))
        )
    )
    assert StateFile(path).load().to_builtins() == state
    assert [one.instance.id for one in StateFile(path)] == ["id0", "id1", "id2"]
    assert StateFile(path).mentions("perturbation")


def test_damage_is_located_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "scenario_state.json"
    text = json.dumps(_state(), indent=2).encode()
    at = text.rindex(b'"train_trial_index":')
    path.write_bytes(text[:at] + b'"train_trial_index";' + text[at + 20 :])
    with pytest.raises(FileFormatError, match=rf"request_states\[2\] is damaged at byte {at + 19} "):
        StateFile(path).load()


def test_a_wrong_type_is_named(tmp_path: Path) -> None:
    path = tmp_path / "scenario_state.json"
    state = _state()
    state["request_states"][1]["train_trial_index"] = "0"
    path.write_text(json.dumps(state, indent=2))
    with pytest.raises(FileFormatError, match=r"request_states\[1\].train_trial_index: expected `int`, got `str`"):
        StateFile(path).load()


@pytest.mark.parametrize("text", ["[]", "{}", '{"adapter_spec": {}}', "3", ""])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "scenario_state.json"
    path.write_text(text)
    with pytest.raises(FileFormatError):
        StateFile(path).load()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"absent\.json cannot be read: No such file"):
        StateFile(tmp_path / "absent.json")


def test_mentions_looks_at_keys_only(tmp_path: Path) -> None:
    path = tmp_path / "scenario_state.json"
    state = _state()
    state["request_states"][0]["instance"]["input"]["text"] = '"perturbation": {'
    path.write_text(json.dumps(state, indent=2))
    assert not StateFile(path).mentions("perturbation")
    state["request_states"][0]["instance"]["perturbation"] = {"name": "typos"}
    path.write_text(json.dumps(state, indent=2))
    assert StateFile(path).mentions("perturbation")
