"""A small random OPT of transformers answers HELM's requests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.helm import Request
from assay.helm.engines.huggingface import HuggingFaceEngine
from assay.helm.selection import load_tokenizer
from tests.helm.running.runs import read, run_command, stat, write_run
from tests.helm.running.small_opt import WINDOW, write_small_opt

torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra hf)")
transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small_opt(tmp_path_factory.mktemp("opt"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> HuggingFaceEngine:
    return HuggingFaceEngine(str(folder), batch_size=4)


def greedy(prompt: str, **settings: Any) -> Request:
    return Request(prompt=prompt, **{"temperature": 0, "max_tokens": 12, **settings})


PROMPTS = ["the river is", "question", "one two three four one two three four red and blue or"]


def logprobs_of(engine: HuggingFaceEngine, ids: list[int]) -> list[float]:
    """The log-probability of each token but the first, from one unpadded pass."""
    with torch.inference_mode():
        logits = engine._model(input_ids=torch.tensor([ids])).logits[0]
    values = torch.log_softmax(logits[:-1], dim=-1)
    return [float(values[place, token]) for place, token in enumerate(ids[1:])]


def test_a_batch_answers_as_each_prompt_alone(engine: HuggingFaceEngine) -> None:
    together = engine.generate([greedy(prompt) for prompt in PROMPTS])
    alone = [engine.generate([greedy(prompt)])[0] for prompt in PROMPTS]
    assert [[one.text for one in answers] for answers in together] == [
        [one.text for one in answers] for answers in alone
    ]
    assert len({answers[0].text for answers in together}) == len(PROMPTS)
    for (first,), (second,) in zip(together, alone, strict=True):
        assert [token.logprob for token in first.tokens] == pytest.approx(
            [token.logprob for token in second.tokens], abs=1e-4
        )


def test_tokens_are_the_likeliest_with_the_models_own_log_probabilities(engine: HuggingFaceEngine) -> None:
    ids = engine._ids(PROMPTS[0])
    assert ids[0] == 2, "the tokenizer's own beginning, as in HELM's client"
    ((answer,),) = engine.generate([greedy(PROMPTS[0])])
    generated = list(ids)
    for token in answer.tokens:
        with torch.inference_mode():
            values = torch.log_softmax(engine._model(input_ids=torch.tensor([generated])).logits[0, -1], dim=-1)
        likeliest = int(values.argmax())
        assert engine._decoded([likeliest]) == token.text
        assert token.logprob == pytest.approx(float(values[likeliest]), abs=1e-4)
        generated.append(likeliest)
    assert answer.text == engine._decoded(generated[len(ids) :])


def test_generation_stops_at_a_stop_sequence(engine: HuggingFaceEngine) -> None:
    ((whole,),) = engine.generate([greedy(PROMPTS[0], max_tokens=20)])
    stop = whole.text[5:7]
    ((stopped,),) = engine.generate([greedy(PROMPTS[0], max_tokens=20, stop_sequences=["never to be seen", stop])])
    assert stop in stopped.text
    assert whole.text.startswith(stopped.text)
    assert len(stopped.tokens) < len(whole.tokens)
    assert (whole.finish_reason, stopped.finish_reason) == ("length", "stop")


def test_prompts_are_scored_token_by_token(engine: HuggingFaceEngine) -> None:
    requests = [Request(prompt=prompt, temperature=0, max_tokens=0, echo_prompt=True) for prompt in PROMPTS]
    for request, (scored,) in zip(requests, engine.generate(requests), strict=True):
        assert "".join(token.text for token in scored.tokens) == request.prompt == scored.text
        expected = logprobs_of(engine, engine._ids(request.prompt))
        assert [token.logprob for token in scored.tokens] == pytest.approx(expected, abs=1e-4)


def test_without_a_beginning_the_first_token_has_no_log_probability(folder: Path) -> None:
    engine = HuggingFaceEngine(str(folder), add_bos=False)
    ((scored,),) = engine.generate([Request(prompt=PROMPTS[0], temperature=0, max_tokens=0, echo_prompt=True)])
    ids = engine._tokenizer.encode(PROMPTS[0], add_special_tokens=False)
    assert [token.logprob for token in scored.tokens] == pytest.approx([0, *logprobs_of(engine, ids)], abs=1e-4)


def test_sampled_completions_differ_and_come_again(engine: HuggingFaceEngine) -> None:
    request = greedy(PROMPTS[0], temperature=1.0, num_completions=3)
    ((*first,), (*_,)) = engine.generate([request, greedy(PROMPTS[1], temperature=1.0, num_completions=3)])
    assert len({one.text for one in first}) == 3
    again = engine.generate([request, greedy(PROMPTS[1], temperature=1.0, num_completions=3)])
    assert list(again[0]) == first


def test_a_greedy_answer_is_given_as_often_as_asked_for(engine: HuggingFaceEngine) -> None:
    (answers,) = engine.generate([greedy(PROMPTS[0], num_completions=3)])
    assert len(answers) == 3
    assert len({one.text for one in answers}) == 1


def test_long_prompts_are_cut_at_their_end(engine: HuggingFaceEngine) -> None:
    assert engine.max_length == WINDOW
    long = "river house " * 60
    fitted = engine.truncate_prompt(greedy(long))
    assert long.startswith(fitted.prompt)
    assert engine.count_tokens(fitted.prompt) == WINDOW - 12 + 1, "the token that begins it does not count"
    ((answer,),) = engine.generate([fitted])
    assert len(answer.tokens) == 12
    assert engine.truncate_prompt(greedy(PROMPTS[0])) == greedy(PROMPTS[0])
    with pytest.raises(UnsupportedTaskError, match="asks for 64 tokens, but the model's context length is 64"):
        engine.truncate_prompt(greedy(long, max_tokens=WINDOW))


def test_settings_that_generation_does_not_know_are_refused(engine: HuggingFaceEngine) -> None:
    with pytest.raises(UnsupportedTaskError, match="penalties"):
        engine.check_supported(greedy("x", presence_penalty=0.1))
    with pytest.raises(UnsupportedTaskError, match="lone surrogate"):
        engine.check_supported(greedy("x\ud800"))


def test_no_model_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SpecificationError, match=r"has no config\.json"):
        HuggingFaceEngine(str(tmp_path))


def test_a_model_without_its_tokenizer_is_refused(tmp_path: Path, folder: Path) -> None:
    """Of a model's configuration alone transformers makes a tokenizer without a word, to which all texts are empty."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    for path in tmp_path.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(SpecificationError, match="has no vocabulary"):
        HuggingFaceEngine(str(tmp_path))
    with pytest.raises(SpecificationError, match="has no vocabulary"):
        load_tokenizer(f"hf:{tmp_path}")


def test_what_does_not_go_together_is_one_clear_line(folder: Path) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(SpecificationError, match="the device 'cuda' cannot be used"):
            HuggingFaceEngine(str(folder), device="cuda")
    engine = HuggingFaceEngine(str(folder), max_length=10 * WINDOW)
    with pytest.raises(SpecificationError, match="its context length may be below 640 tokens"):
        engine.generate([greedy("question " * 2 * WINDOW)])


def test_description_to_five_files(tmp_path: Path, folder: Path) -> None:
    """The whole way: HELM's run specification and prompts, a model in this process, metrics."""
    if not os.environ.get("ASSAY_HELM_PYTHON"):
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    run_command("simple_mcqa", "--model", f"hf:{folder}", "--max-eval-instances", "6", "--output-dir", tmp_path)
    answered = tmp_path / f"runs/assay/simple_mcqa:model=local_{folder.name}"
    states = read(answered, "scenario_state.json")["request_states"]
    assert len(states) == 6
    for one in states:
        assert one["num_train_instances"] < 5, "examples that do not fit into the small window are left out by HELM"
        assert one["result"]["completions"][0]["logprob"] < 0
    assert 0 <= stat(answered, "exact_match") <= 1
    assert stat(answered, "num_prompt_tokens") <= WINDOW


def test_answers_are_those_of_helms_own_client(tmp_path: Path, folder: Path) -> None:
    python = os.environ.get("ASSAY_HELM_PYTHON")
    if not python:
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    name = f"huggingface/{folder.name}"
    entry = f"simple_mcqa:model={name}"
    theirs = ["--run-entries", entry, "--enable-local-huggingface-models", str(folder), "--disable-cache"]
    limits = ["--suite", "theirs", "--max-eval-instances", "6", "-o", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [python, "-m", "helm.benchmark.run", *theirs, *limits]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path, env=environment)
    run_command(entry, "--model", f"hf:{folder}", "--max-eval-instances", "6", "--output-dir", tmp_path)
    ours, recorded = (
        tmp_path / f"runs/{suite}/simple_mcqa:model={name.replace('/', '_')}" for suite in ("assay", "theirs")
    )
    for file in ("run_spec.json", "scenario.json"):
        assert (ours / file).read_bytes() == (recorded / file).read_bytes()
    states = read(ours, "scenario_state.json")["request_states"]
    for our, their in zip(states, read(recorded, "scenario_state.json")["request_states"], strict=True):
        assert our["request"] == their["request"]
        (mine,), (other,) = our["result"]["completions"], their["result"]["completions"]
        assert mine["text"] == other["text"]
        assert [token["text"] for token in mine["tokens"]] == [token["text"] for token in other["tokens"]]
        assert other["logprob"] == 0, "of the distribution that is sampled from"
    for score in ("exact_match", "num_prompt_tokens", "num_output_tokens", "num_train_instances"):
        assert stat(ours, score) == stat(recorded, score)


def test_run_directory_to_five_files(tmp_path: Path, folder: Path) -> None:
    run_dir = write_run(tmp_path / "earlier", count=5)
    run_command(run_dir, "--model", f"hf:{folder}", "--helm-name", "facebook/opt", "--output-dir", tmp_path)
    answered = tmp_path / "runs/assay/orc:task=x,model=facebook_opt"
    assert {path.name for path in answered.iterdir()} == {
        "run_spec.json",
        "scenario.json",
        "scenario_state.json",
        "stats.json",
        "per_instance_stats.json",
    }
    states = read(answered, "scenario_state.json")["request_states"]
    for one in states:
        (completion,) = one["result"]["completions"]
        assert 0 < len(completion["tokens"]) <= 5
        assert completion["logprob"] == sum(token["logprob"] for token in completion["tokens"]) < 0
        assert "\n" not in completion["text"]
    assert stat(answered, "num_prompt_tokens") > 1
    assert stat(answered, "logprob") < 0
