"""FlexLLMGen itself answers HELM's requests, with a small random OPT and without a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.flexllmgen.policy import read_policy_options
from assay.helm import Request
from tests.helm.running.runs import read, run_command, stat, write_run
from tests.helm.running.small_opt import write_small_opt

PROMPTS = ["the river is", "question", "one two three four one two three four red and blue or"]
FILES = {"run_spec.json", "scenario.json", "scenario_state.json", "stats.json", "per_instance_stats.json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="PyTorch is not installed (extra hf)")
    pytest.importorskip("flexgen", reason="FlexLLMGen is not installed (docs/helm.md)")
    return write_small_opt(tmp_path_factory.mktemp("opt"), window=256, ffn_dim=4 * 32)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {name: str(tmp_path_factory.mktemp(name)) for name in ("path", "offload_dir")}


@pytest.fixture(scope="module")
def engine(folder: Path, places: dict[str, str]) -> Iterator[Any]:
    from assay.helm.engines.flexllmgen import FlexLLMGenEngine

    made = FlexLLMGenEngine(str(folder), {**places, "gpu_batch_size": 4})
    yield made
    made.close()


def greedy(prompt: str, **settings: Any) -> Request:
    return Request(prompt=prompt, **{"temperature": 0, "max_tokens": 12, **settings})


def engine_options(places: dict[str, str], **more: Any) -> list[str]:
    return [
        word
        for name, value in {**places, "gpu_batch_size": 4, **more}.items()
        for word in ("--engine-option", f"{name}={value}")
    ]


def of_transformers(folder: Path, prompt: str, num_tokens: int) -> list[str]:
    """The pieces that transformers generates after the prompt, in the precision of FlexLLMGen's weights."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.OPTForCausalLM.from_pretrained(folder, dtype=torch.float16)
    model.generation_config.eos_token_id = None  # FlexLLMGen goes on after it
    ids = torch.tensor([tokenizer.encode(prompt, add_special_tokens=False)])
    made = model.generate(ids, max_new_tokens=num_tokens, do_sample=False)
    pieces: list[str] = tokenizer.convert_ids_to_tokens(made[0, ids.shape[1] :])
    return pieces


@pytest.mark.parametrize("percent", ["100 0 100 0 100 0", "0 100 0 100 0 100", "0 0 0 0 100 0", "50 50 50 50 100 0"])
def test_tokens_are_those_of_transformers_wherever_the_weights_lie(
    folder: Path, places: dict[str, str], percent: str
) -> None:
    from assay.helm.engines.flexllmgen import FlexLLMGenEngine

    engine = FlexLLMGenEngine(str(folder), {**places, "gpu_batch_size": 4, "percent": percent})
    answers = engine.generate([greedy(prompt) for prompt in PROMPTS])
    engine.close()
    for prompt, (answer,) in zip(PROMPTS, answers, strict=True):
        assert [token.text for token in answer.tokens] == of_transformers(folder, prompt, 12)
        assert {token.logprob for token in answer.tokens} == {0}
        assert answer.finish_reason == "length"


def test_an_answer_ends_with_its_stop_token(engine: Any) -> None:
    ((whole,),) = engine.generate([greedy(PROMPTS[0])])
    stop = next(piece.text for piece in whole.tokens if piece.text.isalpha() and piece.text.isascii())
    ((stopped,),) = engine.generate([greedy(PROMPTS[0], stop_sequences=[stop])])
    assert stopped.finish_reason == "stop"
    assert stopped.tokens[-1].text == stop
    assert whole.text.startswith(stopped.text)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"echo_prompt": True, "max_tokens": 0}, "FlexLLMGen returns none: use --model hf:"),
        ({"num_completions": 2, "temperature": 0.5}, "2 completions of a prompt, and FlexLLMGen gives one"),
        ({"top_p": 0.9, "temperature": 0.5}, "FlexLLMGen has no top_p"),
        ({"presence_penalty": 1.0}, "penalties"),
    ],
)
def test_a_request_that_flexllmgen_cannot_answer_is_refused(
    engine: Any, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedTaskError, match=message):
        engine.check_supported(greedy("x", **settings))


def test_a_long_prompt_is_cut_at_its_end(engine: Any) -> None:
    cut = engine.truncate_prompt(greedy("river " * 400, max_tokens=57))
    assert engine.count_tokens(cut.prompt) == 256 - 57 + 1
    assert ("river " * 400).startswith(cut.prompt)
    ((answer,),) = engine.generate([cut])
    assert len(answer.tokens) == 57
    with pytest.raises(UnsupportedTaskError, match="for 257 tokens, but the model's context length is 256"):
        engine.truncate_prompt(greedy("river", max_tokens=257))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"percents": "1"}, "FlexLLMGen has no option 'percents'"),
        ({"gpu_batch_size": "none"}, "an option of FlexLLMGen is wrong"),
        ({"percent": "100 0 100"}, "six whole numbers"),
        ({"percent": "100 10 100 0 100 0"}, "each pair at most 100"),
        ({"percent": "100 0 100 0 0 0"}, "puts them on disk, where FlexLLMGen loses them"),
        ({"percent": "100 0 100 0 50 50"}, "splits the activations"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        read_policy_options(options)


def test_a_model_that_flexllmgens_opt_is_not_is_refused(tmp_path: Path, places: dict[str, str]) -> None:
    pytest.importorskip("flexgen", reason="FlexLLMGen is not installed (docs/helm.md)")
    from assay.helm.engines.flexllmgen import FlexLLMGenEngine

    with pytest.raises(SpecificationError, match="its ffn_dim is 64, and FlexLLMGen's OPT has 128"):
        FlexLLMGenEngine(str(write_small_opt(tmp_path)), places)


@pytest.mark.parametrize("option", ["compress_weight=true", "compress_cache=true", "attn_sparsity=0.5"])
def test_what_needs_a_gpu_is_refused_without_one(folder: Path, places: dict[str, str], option: str) -> None:
    from assay.helm.engines.flexllmgen import FlexLLMGenEngine

    if pytest.importorskip("torch").cuda.is_available():
        pytest.skip("this machine has a GPU")
    name, value = option.split("=")
    with pytest.raises(SpecificationError, match=f"FlexLLMGen cannot do {name} without a GPU"):
        FlexLLMGenEngine(str(folder), {**places, name: value})


def test_run_directory_to_five_files(tmp_path: Path, folder: Path, places: dict[str, str]) -> None:
    earlier = write_run(tmp_path / "earlier", count=5)
    name = ("--helm-name", "facebook/opt", "--output-dir", tmp_path)
    run_command(earlier, "--model", f"flexllmgen:{folder}", *engine_options(places), *name)
    answered = tmp_path / "runs/assay/orc:task=x,model=facebook_opt"
    assert {path.name for path in answered.iterdir()} == FILES
    for one in read(answered, "scenario_state.json")["request_states"]:
        (completion,) = one["result"]["completions"]
        assert 0 < len(completion["tokens"]) <= 5
        assert completion["logprob"] == 0
    assert stat(answered, "num_prompt_tokens") > 1


def test_description_with_trials_to_five_files(tmp_path: Path, folder: Path, places: dict[str, str]) -> None:
    if not os.environ.get("ASSAY_HELM_PYTHON"):
        pytest.skip("ASSAY_HELM_PYTHON names no interpreter that has crfm-helm")
    limits = ("--max-eval-instances", "3", "--num-train-trials", "2", "--output-dir", tmp_path)
    run_command("simple_mcqa", "--model", f"flexllmgen:{folder}", *engine_options(places), *limits)
    answered = tmp_path / f"runs/assay/simple_mcqa:model=local_{folder.name}"
    assert {path.name for path in answered.iterdir()} == FILES
    states = read(answered, "scenario_state.json")["request_states"]
    assert {one["train_trial_index"] for one in states} == {0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "flexllmgen:x", "--dtype", "float32"], "--dtype is not for FlexLLMGen"),
        (["--model", "flexllmgen:x", "--engine-option", "percent"], "'percent' is not NAME=VALUE"),
        (["--model", "flexllmgen:x", *["--engine-option", "path=a"] * 2], "'path=a' is given twice"),
        (["--model", "flexllmgen:x", "--base-url", "http://127.0.0.1:1"], "leave out --base-url"),
        (["--model", "hf:x", "--engine-option", "path=a"], "--engine-option is for FlexLLMGen"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        run_command(write_run(tmp_path / "earlier"), *options)


def test_damaged_weights_are_one_line_and_the_process_ends(
    folder: Path, places: dict[str, str], tmp_path: Path
) -> None:
    shutil.copytree(places["path"], tmp_path / "weights")
    for file in (tmp_path / "weights").glob("*/decoder.layers.0.fc1.weight"):
        file.write_bytes(file.read_bytes()[:200])
    program = (
        "import sys; from assay.errors import SpecificationError\n"
        "from assay.helm.engines.flexllmgen import FlexLLMGenEngine as E\n"
        f"options = {places | {'path': str(tmp_path / 'weights')}!r}\n"
        f"try: E({str(folder)!r}, options)\n"
        "except SpecificationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stdout.splitlines()
    assert "FlexLLMGen cannot load the weights in" in line
    assert "remove that folder, and it is written again" in line


def test_a_process_that_forgets_to_close_ends_well(folder: Path, places: dict[str, str]) -> None:
    program = (
        "import sys; from assay.helm.engines.flexllmgen import FlexLLMGenEngine as E; from assay.helm import Request\n"
        f"engine = E({str(folder)!r}, {places | {'gpu_batch_size': 2}!r})\n"
        "engine.generate([Request(prompt='the river', temperature=0, max_tokens=3)])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "terminate called" not in done.stderr
