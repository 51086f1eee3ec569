"""Configurations of inference projects' CI become policies that say what they no longer mean."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from assay.cli import main
from assay.errors import AssayError, FileFormatError, SpecificationError, UnsupportedTaskError
from assay.gate.inference_configs import Demand, ImportedGate, read_configs
from assay.gate.policy import Policy, load_policy, specifications
from assay.gate.policy_text import policy_text
from tests.gate.conftest import TASKS, right, wrong
from tests.servers.scripted import ScriptedServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "inference-ci"
FILES = sorted(EXAMPLES.rglob("*.yaml"))


def imported(file: Path, folder: Path) -> Policy:
    (gate,) = read_configs(file)
    policy = folder / f"{gate.name}.toml"
    policy.write_text(policy_text(gate), encoding="utf-8")
    return load_policy(policy)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_each_example_is_a_policy_that_keeps_its_settings(file: Path, tmp_path: Path) -> None:
    config = yaml.safe_load(file.read_text())
    policy = imported(file, tmp_path)
    assert list(specifications(policy)) == ["main"]
    model = policy.models["main"]
    assert model.model == config.get("model_name", config.get("vllm", {}).get("model"))
    own = config["lm_eval"]["tasks"][0] if "lm_eval" in config else config
    assert policy.options.num_fewshot == own["num_fewshot"]
    assert model.endpoint == ("chat" if own.get("apply_chat_template") else "completions")


def test_there_are_five_of_each_kind() -> None:
    assert [len(list((EXAMPLES / kind).glob("*.yaml"))) for kind in ("lm-eval", "gsm8k", "workloads")] == [5, 5, 5]


def test_thresholds_are_the_values_less_their_tolerance(tmp_path: Path) -> None:
    def demands(name: str) -> list[tuple[str, str, Any]]:
        policy = imported(EXAMPLES / f"{name}.yaml", tmp_path)
        return [(check.task, check.metric, check.min) for check in policy.checks]

    assert demands("lm-eval/small-chat") == [
        ("gsm8k", "exact_match,strict-match", pytest.approx(0.62 * 0.92)),
        ("gsm8k", "exact_match,flexible-extract", pytest.approx(0.64 * 0.92)),
    ]
    assert demands("lm-eval/several-tasks")[1] == ("hellaswag", "acc_norm,none", pytest.approx(0.79 * 0.97))
    assert demands("lm-eval/no-tolerance") == [("gsm8k", "exact_match,flexible-extract", 0.5)]
    assert demands("lm-eval/by-confidence") == [("aime25", "exact_match,none", pytest.approx(0.36))]
    assert demands("gsm8k/small-chat") == [("gsm8k", "exact_match,flexible-extract", pytest.approx(0.54))]
    assert demands("gsm8k/mixture") == [("gsm8k", "exact_match,flexible-extract", pytest.approx(0.75))]


def test_what_is_not_kept_is_said_where_it_stands() -> None:
    text = {file.stem: policy_text(read_configs(file)[0]) for file in (EXAMPLES / "lm-eval").glob("*.yaml")}
    assert "enforce_eager: True is for starting the server" in text["small-chat"]
    assert "is below it in 5.3% of runs of 250" in " ".join(text["small-chat"].replace("#", "").split())
    assert "alpha = 0.05" in text["by-confidence"]
    assert "limit" not in re.sub("#.*", "", text["by-confidence"])
    assert "below it in every second run" in text["no-tolerance"]
    odd = ImportedGate(name="odd", model="m", demands=(), remarks=("colour: 'red' is not known here",))
    assert "# - colour: 'red' is not known here" in policy_text(odd)


def test_a_list_is_read_relative_to_its_folder() -> None:
    assert [gate.name for gate in read_configs(EXAMPLES / "gsm8k" / "models.txt")] == ["small-chat", "mixture"]


def test_the_command_writes_and_never_overwrites(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["gate", "import", str(EXAMPLES / "gsm8k" / "models.txt"), "--output-dir", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--base-url", "http://10.0.0.1:8000"])
    assert ended.value.code == 0
    assert capfd.readouterr().out.split() == [str(tmp_path / "small-chat.toml"), str(tmp_path / "mixture.toml")]
    assert load_policy(tmp_path / "mixture.toml").models["main"].base_url == "http://10.0.0.1:8000"
    with pytest.raises(SystemExit) as again:
        main(command)
    assert again.value.code == 2
    assert "is there already" in capfd.readouterr().err


def test_two_configurations_of_one_name_are_refused_before_any_is_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        shutil.copy(FILES[0], tmp_path / folder / "same.yaml")
    files = [str(tmp_path / folder / "same.yaml") for folder in ("a", "b")]
    with pytest.raises(SystemExit) as ended:
        main(["gate", "import", *files, "--output-dir", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert f"{files[1]} would be the second" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_gate_of_yaml_says_how_to_convert(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["gate", str(FILES[0])])
    assert ended.value.code == 2
    assert f"assay gate import {FILES[0]}" in capfd.readouterr().err


@pytest.mark.parametrize(("answer", "code"), [(right, 0), (wrong, 1)])
def test_an_imported_policy_judges_a_server(answer: Any, code: int, tmp_path: Path) -> None:
    config = {
        "model_name": "scripted",
        "tasks": [{"name": "counting", "metrics": [{"name": "exact_match,get-answer", "value": 0.9}]}],
        "apply_chat_template": True,
        "num_fewshot": 0,
    }
    file = tmp_path / "counting.yaml"
    file.write_text(yaml.safe_dump(config))
    with ScriptedServer(answer=answer, models=["scripted"]) as server, pytest.raises(SystemExit):
        main(["gate", "import", str(file), "--output-dir", str(tmp_path), "--base-url", server.url])
    policy = tmp_path / "counting.toml"
    shutil.copytree(TASKS, tmp_path / "tasks")
    policy.write_text(policy.read_text().replace("[options]", '[options]\ninclude_path = "tasks"'))
    with ScriptedServer(answer=answer, models=["scripted"]) as server, pytest.raises(SystemExit) as ended:
        main(["gate", str(policy), "--base-url", server.url, "--output-dir", str(tmp_path / "out")])
    assert ended.value.code == code


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("just words", FileFormatError, "no settings by name"),
        ("a: [", FileFormatError, "as YAML"),
        ("a: 1", FileFormatError, "is no configuration that is known here"),
        ("model_name: m\ntasks: []", FileFormatError, "must be a list"),
        ("model_name: m\ntasks: [{metrics: []}]", FileFormatError, "has no name"),
        (
            "model_name: m\ntasks: [{name: t, metrics: [{name: acc, value: high}]}]",
            SpecificationError,
            "value is 'high'",
        ),
        ("model_name: m\naccuracy_threshold: 0.5\ntolerance: much", SpecificationError, "tolerance is 'much'"),
        (
            "model_name: m\nbackend: vllm-vlm\ntasks: [{name: t, metrics: []}]",
            UnsupportedTaskError,
            "asks about images",
        ),
    ],
)
def test_bad_files_are_refused_in_words(text: str, error: type[AssayError], says: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(error, match=re.escape(says)):
        read_configs(file)
    with pytest.raises(FileFormatError, match="cannot read"):
        read_configs(tmp_path / "nowhere.yaml")


VALUES = st.recursive(
    st.text(max_size=5) | st.integers(-9, 9) | st.booleans() | st.floats(-5, 5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(min_size=1, max_size=5), VALUES, max_size=3), st.text(max_size=6))
def test_whatever_the_settings_the_text_is_toml(settings: dict[str, Any], model: str) -> None:
    import tomllib

    gate = ImportedGate(
        name="g",
        model=model,
        demands=(Demand(task=model, metric="acc,none", min=0.1, value=0.2),),
        options={"gen_kwargs": settings},
    )
    document = tomllib.loads(policy_text(gate))
    assert document["options"]["gen_kwargs"] == settings
    assert document["models"]["main"]["model"] == model
