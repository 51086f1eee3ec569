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
        assert "at byte" in str(refusal.value)
        assert "\n" not in str(refusal.value)


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
