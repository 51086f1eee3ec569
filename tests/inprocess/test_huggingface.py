"""What the transformers engine refuses, samples and survives."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import assay
from assay.inprocess.engine import Generation, GenerationPrompt, ScoredPrompt
from assay.inprocess.preparing import load_engine
from tests.inprocess.small_models import NEEDED, write_small_model

torch = pytest.importorskip("torch", reason=NEEDED)
transformers = pytest.importorskip("transformers", reason=NEEDED)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

TASKS = Path(__file__).parents[1] / "loglikelihood_tasks"


def engine_of(path: str | Path, **options: Any) -> Any:
    return load_engine(assay.LocalModel(f"hf:{path}", device=options.pop("device", "cpu"), **options))


def refusal(path: str | Path, **options: Any) -> str:
    with pytest.raises(assay.SpecificationError) as caught:
        engine_of(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_model(tmp_path_factory.mktemp("llama"), "llama")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "there is no folder" in refusal(tmp_path / "none")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    assert "no config.json" in refusal(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    write_small_model(tmp_path, "llama")
    (tmp_path / "model.safetensors").unlink()
    assert "has no weights" in refusal(tmp_path)


def test_damaged_weights(tmp_path: Path) -> None:
    write_small_model(tmp_path, "llama")
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    assert "cannot be loaded" in refusal(tmp_path)


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    write_small_model(tmp_path, "llama")
    model = transformers.LlamaForCausalLM.from_pretrained(tmp_path)
    model.model.norm.weight.data[3] = float("nan")
    model.save_pretrained(tmp_path)
    assert "are not finite: model.norm.weight" in refusal(tmp_path)


def test_an_encoder_decoder(tmp_path: Path) -> None:
    write_small_model(tmp_path, "llama")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    assert "is an encoder-decoder (t5)" in refusal(tmp_path)


def test_a_model_of_images(tmp_path: Path) -> None:
    write_small_model(tmp_path, "llama")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "vit"}))
    assert "of the kind vit, which is no causal model of text" in refusal(tmp_path)


@pytest.mark.parametrize("device", ["cuda:7", "toaster"])
def test_a_device_that_is_not_there(llama: str, device: str) -> None:
    assert repr(device) in refusal(llama, device=device)


def test_a_context_longer_than_the_model(llama: str) -> None:
    assert "max_length is 500, but the model's context length is 128" in refusal(llama, max_length=500)


def test_a_tokenizer_without_chat_template(llama: str) -> None:
    with pytest.raises(assay.SpecificationError, match="has no chat template"):
        _ = engine_of(llama).tokenizer.chat_template


def test_what_is_sampled_depends_on_neither_the_batch_nor_its_order(llama: str) -> None:
    engine = engine_of(llama)
    prompts = [GenerationPrompt(tuple(range(5, 8 + number)), seed=number) for number in range(6)]
    how = Generation(max_tokens=12, temperature=0.8, others={"top_p": 0.95})
    together = engine.generate(prompts, how)
    assert [engine.generate([prompt], how)[0] for prompt in prompts] == together
    assert engine.generate(prompts[::-1], how)[::-1] == together
    assert len({one.text for one in together}) > 1


def test_samples_follow_the_models_distribution(llama: str) -> None:
    engine = engine_of(llama)
    context = (5, 9, 14)
    expected = engine.score([ScoredPrompt(context, (token,)) for token in range(400)])
    likeliest = max(range(400), key=lambda token: expected[token].logprob)
    how = Generation(max_tokens=1, temperature=1.0, others={"top_k": 0})
    drawn = engine.generate([GenerationPrompt(context, seed=seed) for seed in range(2000)], how)
    word = engine.tokenizer.decode([likeliest], skip_special_tokens=True)
    alike = [t for t in range(400) if engine.tokenizer.decode([t], skip_special_tokens=True) == word]
    share = sum(float(torch.tensor(expected[token].logprob).exp()) for token in alike)
    # Five standard errors of a share of 2000 draws.
    assert sum(one.text == word for one in drawn) / 2000 == pytest.approx(share, abs=5 * (share / 2000) ** 0.5 + 1e-3)


def test_a_batch_beyond_memory_is_a_memory_error(llama: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of(llama)

    def forward(*_: Any, **__: Any) -> Any:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    monkeypatch.setattr(engine, "_model", forward)
    monkeypatch.setattr(engine, "_padded", lambda _: (None, torch.ones(1, 2)))
    with pytest.raises(MemoryError):
        engine.score([ScoredPrompt((5,), (6,))])


def run(model: str, folder: Path) -> subprocess.Popen[bytes]:
    options = ["--include-path", str(TASKS), "--output-dir", str(folder), "--device", "cpu", "--batch-size", "2"]
    command = [sys.executable, "-m", "assay", "run", "choosing,reading,writing", "--model", f"hf:{model}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *options, "--no-report", "--no-triage"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_a_run_that_is_killed_ten_times_ends_as_one_that_was_not(llama: str, tmp_path: Path) -> None:
    whole = run(llama, tmp_path / "whole")
    began = time.monotonic()
    assert whole.wait() == 0
    usual = time.monotonic() - began
    chance = random.Random(5)
    for _ in range(10):
        killed = run(llama, tmp_path / "killed")
        try:
            killed.wait(timeout=usual * chance.uniform(0.3, 0.9))
        except subprocess.TimeoutExpired:
            killed.kill()
            killed.wait()
    assert run(llama, tmp_path / "killed").wait() == 0
    assert scores(tmp_path / "killed") == scores(tmp_path / "whole")


def scores(folder: Path) -> Any:
    file = max(folder.rglob("results_*.json"))
    return json.loads(file.read_text())["results"]
