"""The names that programs written for HELM 0.2.1 import, and FlexLLMGen's script on them."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

import pytest

from assay.errors import OutputError
from assay.helm import GeneratedOutput, legacy
from tests.helm.running.runs import read, run_command, stat
from tests.helm.running.small_opt import write_small_opt

SCRIPT = Path(__file__).parents[3] / "examples/flexllmgen/helm_run.py"


class Words:
    """A tokenizer with a token for each word."""

    model_max_length = 5

    def encode(self, text: str, **_: Any) -> list[str]:
        return text.split()

    def decode(self, tokens: list[str], **_: Any) -> str:
        return " ".join(tokens)


def test_a_window_service_cuts_a_text_to_the_tokenizers_length() -> None:
    service = legacy.WindowService(legacy.OptTokenizer("words", Words()))
    assert service.get_num_tokens("a b c") == 3
    assert service.fits_within_context_window("a b c", 2)
    assert not service.fits_within_context_window("a b c", 3)
    assert service.truncate_from_right("a b c d e f") == "a b c d e"
    assert service.truncate_from_right("a b c d e f", 2) == "a b c"
    assert service.truncate_from_right("a  b", 2) == "a  b", "a text that fits stays as it is"
    assert legacy.WindowService(legacy.OptTokenizer("words", Words()), 9).max_sequence_length == 9


def test_a_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    legacy.ensure_directory_exists(tmp_path / "a/b")
    legacy.ensure_directory_exists(tmp_path / "a/b")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file/under cannot be made"):
        legacy.ensure_directory_exists(tmp_path / "file/under")


def test_a_sequence_is_todays_output_and_every_name_is_there() -> None:
    assert legacy.Sequence is GeneratedOutput
    assert [name for name in legacy.__all__ if not hasattr(legacy, name)] == []
    assert legacy.Request(model="facebook/opt-1.3b").model_engine == "opt-1.3b"


def test_the_script_is_short() -> None:
    lines = [line for line in SCRIPT.read_text().splitlines() if line.strip()]
    assert len(lines) < 60


def test_flexllmgens_script_gives_what_the_command_gives(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (extra hf)")
    pytest.importorskip("flexgen", reason="FlexLLMGen is not installed (docs/helm.md)")
    if not os.environ.get("ASSAY_HELM_PYTHON"):
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    (tmp_path / "opt").mkdir()
    folder = write_small_opt(tmp_path / "opt", window=256, ffn_dim=4 * 32)
    options = [f"path={tmp_path / 'weights'}", f"offload_dir={tmp_path / 'offload'}", "gpu_batch_size=4"]
    runpy.run_path(str(SCRIPT))["main"]("simple_mcqa", str(folder), str(tmp_path / "script"), *options)
    flags = [word for option in options for word in ("--engine-option", option)]
    limits = ("--max-eval-instances", "3", "--num-train-trials", "3", "--first-metric-only")
    name = ("--helm-name", "facebook/opt", "--output-dir", tmp_path)
    run_command("simple_mcqa", "--model", f"flexllmgen:{folder}", *flags, *limits, *name)
    (script,) = (tmp_path / "script").glob("simple_mcqa*")
    command = tmp_path / "runs/assay" / script.name
    for file in ("run_spec.json", "scenario.json"):
        assert (script / file).read_bytes() == (command / file).read_bytes()
    texts = [
        [one["result"]["completions"][0]["text"] for one in read(place, "scenario_state.json")["request_states"]]
        for place in (script, command)
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 9
    assert stat(script, "exact_match") == stat(command, "exact_match")
