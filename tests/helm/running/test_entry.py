"""HELM builds a run from its description: the same prompts as in HELM's own run."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from assay.errors import MissingDependencyError, SpecificationError
from assay.helm import Scenario, StateFile
from assay.helm.running.entry import Entry, build_run


@pytest.fixture
def helm_python() -> str:
    python = os.environ.get("ASSAY_HELM_PYTHON")
    if python is None:
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    return python


def test_prompts_are_those_of_helms_own_run(tmp_path: Path, helm_python: str, oracles_dir: Path) -> None:
    entry = Entry(description="simple_mcqa", model="local/fake", max_eval_instances=120)
    run = build_run(entry, tmp_path, helm_python)
    recorded = oracles_dir / "helm/run_simple_mcqa_model_local_fake"
    assert run.run_spec.to_json() == (recorded / "run_spec.json").read_bytes()
    assert isinstance(run.scenario, Scenario)
    assert run.scenario.to_json() == (recorded / "scenario.json").read_bytes()
    theirs = StateFile(recorded / "scenario_state.json").load()
    assert run.state.adapter_spec == theirs.adapter_spec
    assert [(one.instance, one.request, one.output_mapping) for one in run.state.request_states] == [
        (one.instance, one.request, one.output_mapping) for one in theirs.request_states
    ]


def test_a_description_names_the_model_unless_the_user_does(tmp_path: Path, helm_python: str) -> None:
    named = Entry(description="simple_mcqa:model=meta/opt-x", model="local/served", max_eval_instances=2)
    run = build_run(named, tmp_path, helm_python)
    assert (run.run_spec.name, run.run_spec.adapter_spec.model) == ("simple_mcqa:model=meta_opt-x", "meta/opt-x")
    assert len(run.state.request_states) == 2


def test_trials_have_other_examples(tmp_path: Path, helm_python: str) -> None:
    entry = Entry(description="simple_mcqa", model="local/x", max_eval_instances=2, num_train_trials=3)
    run = build_run(entry, tmp_path, helm_python)
    assert run.run_spec.adapter_spec.num_train_trials == 3
    assert [one.train_trial_index for one in run.state.request_states] == [0, 0, 1, 1, 2, 2]
    assert len({one.request.prompt for one in run.state.request_states}) == 6


def test_the_builder_is_told_all_that_was_asked_for(tmp_path: Path) -> None:
    listener = tmp_path / "python"
    listener.write_text(f"#!/bin/sh\ncat > {tmp_path}/order\n")
    listener.chmod(0o755)
    entry = Entry(description="gsm", model="local/x", max_eval_instances=2, num_train_trials=3)
    with pytest.raises(SpecificationError):
        build_run(entry, tmp_path, str(listener))
    order = json.loads((tmp_path / "order").read_text())
    assert (order["max_eval_instances"], order["num_train_trials"]) == (2, 3)


def test_helms_own_words_where_it_cannot_build_the_run(tmp_path: Path, helm_python: str) -> None:
    with pytest.raises(SpecificationError, match="HELM cannot build the run 'nonesuch': ValueError: Unknown run spec"):
        build_run(Entry(description="nonesuch", model="local/x"), tmp_path, helm_python)


def test_without_helm_the_message_says_what_to_do(tmp_path: Path) -> None:
    if importlib.util.find_spec("helm") is not None:
        pytest.skip("crfm-helm is installed here")
    with pytest.raises(MissingDependencyError, match="--helm-python"):
        build_run(Entry(description="gsm", model="local/x"), tmp_path)


def test_an_interpreter_that_builds_nothing(tmp_path: Path) -> None:
    idle = tmp_path / "python"
    idle.write_text("#!/bin/sh\nexit 0\n")
    idle.chmod(0o755)
    with pytest.raises(SpecificationError, match=r"ended without an error; is .*python a Python interpreter\?"):
        build_run(Entry(description="gsm", model="local/x"), tmp_path, str(idle))


HELM_THAT_IMPORTS_PLUGINS = """
import importlib
def import_user_plugins(names):
    for name in names: importlib.import_module(name)
def register_builtin_configs_from_helm_package(): pass
"""
"""What stands for the modules of HELM that are needed as far as the plugins."""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit(3)", r"the plugin 'a_plugin' calls sys.exit\(3\) when it is imported"),
        ("import sys; sys.exit()", r"the plugin 'a_plugin' calls sys.exit\(None\) when"),
        (
            "import os; print('no licence', flush=True); os._exit(0)",
            r"ended.*'no licence'; a plugin may .*\(a_plugin\)",
        ),
        ("import nonesuch", "the plugin 'a_plugin' cannot be imported: ModuleNotFoundError: .*nonesuch"),
        ("import sys; sys.stderr.buffer.write(b'\\xff\\n'); 1 / 0", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_a_plugin_that_ends_the_builder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    for module in ("run", "runner", "config_registry"):
        path = tmp_path / "packages/helm/benchmark" / f"{module}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HELM_THAT_IMPORTS_PLUGINS)
    (tmp_path / "a_plugin.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecificationError, match=reason):
        build_run(Entry(description="gsm", model="local/x", plugins=("a_plugin",)), tmp_path, sys.executable)


def test_an_interpreter_without_helm_is_named(tmp_path: Path) -> None:
    if importlib.util.find_spec("helm") is not None:
        pytest.skip("crfm-helm is installed here")
    with pytest.raises(SpecificationError, match=r"python.* has no crfm-helm: pip install crfm-helm there"):
        build_run(Entry(description="gsm", model="local/x"), tmp_path, sys.executable)


def test_an_interpreter_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match="cannot be run"):
        build_run(Entry(description="gsm", model="local/x"), tmp_path, str(tmp_path / "python"))
