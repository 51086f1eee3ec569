"""A run directory becomes another model's run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from assay.errors import FileFormatError, SpecificationError
from assay.helm.running.runs import helm_name, read_run, with_model
from tests.helm.running.runs import write_run


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("gsm:model=m_m", "gsm:model=local_new"),
        ("gsm:a=m_m,model=m_m,b=1", "gsm:a=m_m,model=local_new,b=1"),
        ("gsm:model=m_m,model_deployment=host_m,groups=x", "gsm:model=local_new,groups=x"),
        ("gsm", "gsm"),
    ],
)
def test_the_model_in_a_runs_name(tmp_path: Path, before: str, after: str) -> None:
    run = read_run(write_run(tmp_path), "m/m")
    run = dataclasses.replace(run, run_spec=msgspec.structs.replace(run.run_spec, name=before))
    assert with_model(run, "local/new").run_spec.name == after


def test_names_have_a_creator() -> None:
    assert helm_name("facebook/opt-1.3b") == "facebook/opt-1.3b"
    assert helm_name("my-model") == "local/my-model"
    assert helm_name("/models/opt") == "local/opt"
    assert helm_name("a/b/c") == "local/c"
    assert helm_name("/models/opt", "meta/opt") == "meta/opt"
    assert helm_name("a/b,c=1") == "a/b_c=1"
    assert helm_name("/") == "local/model"
    assert helm_name("a\x00/b\n\ud800") == "a_/b__"
    for wanted in ("opt", "/opt", "a/b/c", "a/", "a/b,c", "a/b\nc", "a\x00/b"):
        with pytest.raises(SpecificationError, match="CREATOR/NAME"):
            helm_name("x", wanted)


def test_files_of_helm_0_2_stay_as_they_are(oracles_dir: Path) -> None:
    run = read_run(oracles_dir / "helm_0.2.1/flex_gsm_perturbed", "x/y")
    assert run.run_spec.adapter_spec.model == "x/y"
    assert b"model_deployment" not in run.run_spec.to_json() + run.state.to_json()
    assert all(one.result is None for one in run.state.request_states)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../elsewhere", "cannot be the name of a directory"),
        ("a\\u0000b", "cannot be the name of a directory"),
        ("a\\nb", "cannot be the name of a directory"),
        ("\\ud800", "cannot be the name of a directory"),
        ("é" * 128, "256 bytes, and a directory's name at most 255: é"),
    ],
)
def test_a_name_for_which_there_is_no_directory_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    folder = write_run(tmp_path / "run")
    spec = folder / "run_spec.json"
    spec.write_text(spec.read_text().replace("orc:task=x,model=m_m", name))
    with pytest.raises(FileFormatError, match=reason):
        read_run(folder, "m/m").folder_in(tmp_path)
