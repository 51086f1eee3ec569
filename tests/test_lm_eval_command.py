"""``assay lm-eval`` beside the real ``lm_eval``: the same command line, requests, results and samples."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.errors import SpecificationError
from assay.lm_eval_command.assay_run import assay_run
from assay.lm_eval_command.options import MODEL_ARGUMENTS, OPTIONS, Effect
from assay.lm_eval_command.parsing import RunArguments, parse, run_options
from assay.lm_eval_command.translation import translate
from tests.beside_lm_eval import TASKS, Scene
from tests.servers.scripted import ScriptedServer
from tests.small_tokenizer import write_small_tokenizer

URL = "URL"


def chat(more: str, arguments: str = ",num_concurrent=2") -> str:
    served = f"model=imaginary,base_url={URL}/v1/chat/completions{arguments}"
    return f"run --model local-chat-completions --apply_chat_template --model_args {served} {more}"


def text(more: str, arguments: str = "") -> str:
    served = f"model=imaginary,base_url={URL}/v1/completions,tokenizer_backend=None{arguments}"
    return f"run --model local-completions --model_args {served} {more}"


def openai(model: str, arguments: str = "") -> str:
    return chat("--tasks drawing", arguments).replace("local-", "openai-").replace("imaginary", model)


JSON_ARGUMENTS = f'{{"model": "imaginary", "base_url": "{URL}/v1/chat/completions"}}'
WITH_HEADER = JSON_ARGUMENTS.replace("}", ', "header": {"X-Team": "inference"}}')
COMMANDS = {
    "with run": chat("--tasks drawing"),
    "old form": chat("--tasks drawing").removeprefix("run "),
    "short options": chat("-t drawing -L 3 -f 1").replace("--model_args", "-a").replace("--model", "-M"),
    "model_args in words": chat("--tasks drawing").replace(",", " "),
    "model_args as JSON": f"run -M local-chat-completions --apply_chat_template -a '{JSON_ARGUMENTS}' -t drawing",
    "pretrained": chat("--tasks drawing").replace("model=imaginary", "pretrained=imaginary"),
    "several tasks": chat("--tasks drawing often"),
    "tasks by commas": chat("--tasks drawing,often --limit 4"),
    "a group": chat("--tasks inner --limit 2"),
    "completions": text("--tasks drawing"),
    "limit as a fraction": chat("--tasks drawing --limit 0.5"),
    "samples": chat("""--tasks drawing --samples '{"drawing": [1, 5, 7]}'"""),
    "few-shot examples": chat("--tasks drawing --num_fewshot 2"),
    "few-shot in one turn": chat("--tasks drawing --num_fewshot 2 --fewshot_as_multiturn false"),
    "gen_kwargs": chat("--tasks drawing --gen_kwargs temperature=0.5,top_p=0.9"),
    "gen_kwargs in words": chat("--tasks drawing --gen_kwargs temperature=0.5 max_gen_toks=9"),
    "gen_kwargs as JSON": chat("""--tasks drawing --gen_kwargs '{"until": ["x", "y"]}'"""),
    "system instruction": chat("--tasks drawing --system_instruction 'Be brief.'"),
    "one seed": chat("--tasks drawing --seed 7"),
    "four seeds": chat("--tasks drawing --seed 1,2,3,4"),
    "request seed": chat("--tasks drawing", ",seed=99"),
    "max_gen_toks": text("--tasks drawing", ",max_gen_toks=77"),
    "eos_string": text("--tasks drawing", ",eos_string=END"),
    "eos_string of several at once": text("--tasks drawing", ",eos_string=END,num_concurrent=4"),
    "think_end_token": chat("--tasks drawing", ",think_end_token=I"),
    "header": f"run -M local-chat-completions --apply_chat_template -a '{WITH_HEADER}' -t drawing",
    "OpenAI's client": openai("gpt-4o", ",num_concurrent=2"),
    "OpenAI's client, one at a time": openai("gpt-4o"),
    "OpenAI's client and a model that reasons": openai("o3-mini", ",num_concurrent=2"),
    "predict_only": chat("--tasks drawing --predict_only"),
    "metadata": chat("--tasks drawing --metadata length=4096 kind=long"),
    "metadata as JSON": chat("""--tasks drawing --metadata '{"length": 4096}'"""),
    "without effect": chat("--tasks drawing --batch_size auto --device cpu --cache_requests true"),
}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(write_small_tokenizer(tmp_path / "tokenizer"), tmp_path)


@pytest.fixture
def by_lm_eval(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command line by lm-eval's own ``main``, with the tests' tasks alone in its index."""
    pytest.importorskip("tenacity")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
    import lm_eval.tasks
    from lm_eval.__main__ import cli_evaluate

    theirs = lm_eval.tasks.TaskManager
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", lambda **given: theirs(**{"include_defaults": False, **given}))

    def run(arguments: list[str]) -> None:
        monkeypatch.setattr("sys.argv", ["lm_eval", *arguments])
        cli_evaluate()

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_the_same_by_both(
    name: str,
    scene: Scene,
    by_lm_eval: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    with ScriptedServer(answer=scene.answer, models=["imaginary", "gpt-4o", "o3-mini"]) as server:
        command = [*shlex.split(COMMANDS[name].replace(URL, server.url)), "--include_path", str(TASKS), "--log_samples"]
        by_lm_eval([*command, "--output_path", str(theirs)])
        asked = len(server.answered)
        with pytest.raises(SystemExit) as ended:
            main(["lm-eval", *command, "--output_path", str(ours), "--no-probe"])
        assert ended.value.code == 0, capfd.readouterr().err
        expected, got = server.answered[:asked], server.answered[asked:]
    trial = 2 if any(body.get("echo") for body in expected) else 0  # two questions try log-likelihoods out
    assert Counter(map(json.dumps, got[trial:])) == Counter(map(json.dumps, expected))
    assert written(ours) == written(theirs)


def written(output: Path) -> dict[str, Any]:
    """What is the same in the files of two runs: names, scores and samples."""
    found: dict[str, Any] = {}
    for file in sorted(output.rglob("*")):
        name = re.sub(r"\d{4}-\d\d-\d\dT[\d.-]+\d", "TIME", str(file.relative_to(output)))
        if file.name.startswith("results_") and file.suffix == ".json":
            document = json.loads(file.read_text(encoding="utf-8"))
            sections = ("results", "groups", "group_subtasks", "versions", "n-shot", "n-samples", "task_hashes")
            found[name] = {section: document.get(section) for section in sections}
            found["metadata"] = {
                task: {key: config["metadata"].get(key) for key in ("length", "kind", "version")}
                for task, config in document["configs"].items()
            }
        elif file.suffix == ".jsonl":
            found[name] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return found


def test_every_option_of_lm_eval_is_in_the_table() -> None:
    assert set(run_options()) == set(OPTIONS), "a new lm-eval release has other options: say what becomes of them"


def test_every_model_argument_of_lm_evals_clients_is_in_the_table() -> None:
    pytest.importorskip("tenacity")
    import inspect

    from lm_eval.models.api_models import TemplateAPI
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    clients = (TemplateAPI, LocalCompletionsAPI, LocalChatCompletion)
    arguments = {name for client in clients for name in inspect.signature(client.__init__).parameters}
    assert arguments - {"self", "kwargs"} == set(MODEL_ARGUMENTS)


def test_the_page_has_every_option() -> None:
    page = (Path(__file__).parents[1] / "docs" / "lm-eval-command.md").read_text(encoding="utf-8")
    for table, prefix in ((OPTIONS, "--"), (MODEL_ARGUMENTS, "")):
        for name, treatment in table.items():
            assert f"| `{prefix}{name}` | {treatment.effect} | {treatment.words} |" in page


def parsed(*arguments: str) -> RunArguments:
    found = parse(["run", "--model", "local-chat-completions", "--apply_chat_template", *arguments])
    assert isinstance(found, RunArguments)
    return found


SERVED = ("--model_args", "model=m,base_url=http://localhost:1/v1/chat/completions", "--tasks", "gsm8k")
VALUES = {
    "use_cache": ["cache.db"],
    "check_integrity": [],
    "write_out": [],
    "wandb_args": ["project=p"],
    "wandb_config_args": ["a=b"],
    "trackio_args": ["project=p"],
    "hf_hub_log_args": ["hub_results_org=o"],
}


@pytest.mark.parametrize("name", [name for name, each in OPTIONS.items() if each.effect is Effect.REFUSED])
def test_what_is_refused_says_what_to_use_instead(name: str) -> None:
    with pytest.raises(SpecificationError) as refused:
        translate(parsed(*SERVED, f"--{name}", *VALUES[name]))
    assert str(refused.value) == f"--{name} is not supported: {OPTIONS[name].words}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "hf", "--model_args", "pretrained=gpt2", "--tasks", "gsm8k"], "--model hf asks no OpenAI-compat"),
        (["--model_args", "model=m", "--tasks", "gsm8k"], "names no base_url"),
        (["--model_args", "base_url=http://localhost:1", "--tasks", "gsm8k"], "names no model"),
        ([*SERVED[:2]], "name at least one task"),
        ([*SERVED, "--nonsense"], "unrecognized arguments: --nonsense"),
        ([*SERVED, "--limit", "many"], "invalid float value"),
        ([*SERVED, "--log_samples"], "Specify --output_path"),
        ([*SERVED, "--config", "nowhere.yaml"], "Config file not found"),
        ([*SERVED, "--seed", "None"], "--seed None is not supported"),
        ([*SERVED[:1], f"{SERVED[1]},num_concurrent=lots", *SERVED[2:]], "num_concurrent=lots: that is no number"),
        ([*SERVED[:1], f"{SERVED[1]},header={{}}", *SERVED[2:]], "Invalid JSON: model=m"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    usual = ["--model", "local-chat-completions"] if "--model" not in arguments else []
    with pytest.raises(SystemExit) as ended:
        main(["lm-eval", *usual, "--apply_chat_template", *arguments])
    assert ended.value.code == 2
    *_, line = capfd.readouterr().err.strip().splitlines()  # lm-eval logs, once another test has set its logging up
    assert says in line


def test_chat_without_its_template_is_refused_as_lm_eval_could_not_ask() -> None:
    found = parse(["--model", "local-chat-completions", *SERVED])
    assert isinstance(found, RunArguments)
    with pytest.raises(SpecificationError, match="needs --apply_chat_template"):
        translate(found)


def test_a_configuration_file_is_read_and_the_command_line_comes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: local-chat-completions\nmodel_args: {model: m, base_url: 'http://localhost:1/v1/chat/completions'}\n"
        "tasks: [gsm8k]\napply_chat_template: true\nlimit: 5\nnum_fewshot: 3\nseed: 42\n",
        encoding="utf-8",
    )
    found = parse(["run", "--config", str(file), "--limit", "7"])
    assert isinstance(found, RunArguments)
    specification = translate(found).specification
    assert specification.tasks == ("gsm8k",)
    assert (specification.options.limit, specification.options.num_fewshot) == (7, 3)
    assert (specification.options.random_seed, specification.options.fewshot_seed) == (42, 42)


def test_checks_stand_among_lm_evals_options() -> None:
    found = translate(parsed(*SERVED, "--min", "exact_match,strict-match=0.6", "--stop-early", "--alpha", "0.05"))
    (check,) = found.specification.checks
    assert (check.metric, check.min) == ("exact_match,strict-match", 0.6)
    assert found.specification.alpha == 0.05
    assert found.specification.early_stopping is not None


def test_a_tokenizers_end_of_text_is_a_stop_string_of_single_requests(tmp_path: Path) -> None:
    tokenizer = write_small_tokenizer(tmp_path)
    arguments = (
        f"model=m,base_url=http://localhost:1/v1/completions,tokenizer={tokenizer},tokenizer_backend=huggingface"
    )
    for more, eos in (("", "</s>"), (",num_concurrent=8", None)):
        found = parse(["--model", "local-completions", "--model_args", arguments + more, "--tasks", "gsm8k"])
        assert isinstance(found, RunArguments)
        assert translate(found).specification.model.eos_string == eos


def test_results_take_the_name_of_a_json_file(scene: Scene, tmp_path: Path) -> None:
    with ScriptedServer(answer=scene.answer, models=["imaginary"]) as server:
        command = [*shlex.split(COMMANDS["with run"].replace(URL, server.url)), "--include_path", str(TASKS)]
        with pytest.raises(SystemExit):
            main(["lm-eval", *command, "--log_samples", "--output_path", str(tmp_path / "out" / "mine.json")])
    assert [re.sub(r"_\d{4}.*", "", file.stem) for file in sorted((tmp_path / "out").glob("*.json*"))] == [
        "mine",
        "samples_drawing",
    ]


def test_other_commands_are_lm_evals_own(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["lm-eval", "run", "--help"])
    assert ended.value.code == 0
    shown = capfd.readouterr().out
    assert "--apply_chat_template" in shown
    assert "--stop-early" in shown


@pytest.mark.parametrize("task", ["choosing", "gaps"])
def test_answers_alone_of_log_likelihoods_are_a_whole_run(
    task: str, scene: Scene, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = f",tokenizer_backend=huggingface,tokenizer={scene.tokenizer}"
    with ScriptedServer(answer=scene.answer, models=["imaginary"]) as server:
        command = text(f"--tasks {task} --predict_only --limit 2", arguments).replace("tokenizer_backend=None,", "")
        output = ["--include_path", str(TASKS), "--output_path", str(tmp_path / "out"), "--no-probe"]
        with pytest.raises(SystemExit) as ended:
            main(["lm-eval", *shlex.split(command.replace(URL, server.url)), *output])
    assert ended.value.code == 0, capfd.readouterr().err
    assert len(next((tmp_path / "out").rglob("samples_*.jsonl")).read_text(encoding="utf-8").splitlines()) == 2


def test_counts_below_one_are_one_as_in_lm_eval() -> None:
    arguments = f"{SERVED[1]},num_concurrent=0,max_retries=0"
    model = translate(parsed("--model_args", arguments, "--tasks", "gsm8k")).specification.model
    assert (model.concurrency, model.max_attempts) == (1, 1)


@pytest.mark.parametrize(
    "name", ["header", "limit as a fraction", "metadata as JSON", "four seeds", "gen_kwargs as JSON"]
)
def test_the_command_that_assay_run_answers_with_sends_the_same(
    name: str, scene: Scene, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    headers: list[dict[str, str]] = []
    with ScriptedServer(answer=scene.answer, models=["imaginary"]) as server:
        command = [*shlex.split(COMMANDS[name].replace(URL, server.url)), "--include_path", str(TASKS)]
        with pytest.raises(SystemExit):
            main(["lm-eval", *command, "--output_path", str(tmp_path / "before"), "--no-probe"])
        asked = len(server.answered)
        headers.append(server.requests[-1].headers)
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main(["run", *command[1:], "--output_path", str(tmp_path / "after")])
        _, _, typed = capfd.readouterr().err.partition("or type: assay ")
        with pytest.raises(SystemExit) as ended:
            main([*shlex.split(typed), "--no-probe"])
        assert ended.value.code == 0, capfd.readouterr().err
        headers.append(server.requests[-1].headers)
        before, after = server.answered[:asked], server.answered[asked:]
    assert Counter(map(json.dumps, after)) == Counter(map(json.dumps, before))
    assert [each.get("x-team") for each in headers] == ["inference" if name == "header" else None] * 2


def test_a_large_limit_is_typed_in_full() -> None:
    found = translate(parsed(*SERVED, "--limit", "1234567"))
    assert "--limit 1234567 " in assay_run(found.specification)
