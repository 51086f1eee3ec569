"""A server answers a HELM run: results, failures, resumption, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import (
    DataNotFoundError,
    FewerStatisticsError,
    FileFormatError,
    MetricFailedError,
    MissingDependencyError,
    OutputError,
    SamplesFailedError,
    SpecificationError,
    UnsupportedTaskError,
)
from assay.helm import AnnotatorSpec, MetricSpec, RunSpec, StateFile
from assay.helm.scoring import scorer
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from tests.helm.running.runs import NAME, number_of, read, run_command, stat, write_run
from tests.helm.scoring.test_code import PROBLEM, RIGHT, WRONG, code_run
from tests.servers.echoing import ImaginaryModel
from tests.servers.scripted import Fault, ScriptedServer
from tests.small_tokenizer import write_small_tokenizer

Body = dict[str, Any]
ANSWERED = "runs/assay/orc:task=x,model=local_served"


def completion(text: str, tokens: list[tuple[str, float]], index: int = 0) -> Body:
    logprobs = {"tokens": [token for token, _ in tokens], "token_logprobs": [logprob for _, logprob in tokens]}
    return {"text": text, "index": index, "finish_reason": "stop", "logprobs": logprobs}


def right(body: Body) -> Body:
    """The right answer, and more after a line's end that the server should have left out."""
    number = number_of(body)
    tokens = [(f"a{number}", -0.25), ("\nand", -1.0), (" more", -2.0)]
    return {"choices": [completion(f"a{number}\nand more", tokens)], "usage": {"prompt_tokens": 4}}


def serve(answer: Callable[[Body], Any]) -> ScriptedServer:
    return ScriptedServer(answer=answer, models=["served"])


def ask(run_dir: Path, server: ScriptedServer, out: Path, *options: str) -> None:
    run_command(run_dir, "--base-url", server.url, "--model", "served", "--output-dir", out, *options)


def test_a_run_directory_is_asked_again(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier")
    with serve(right) as server:
        ask(run_dir, server, tmp_path)
    folder = tmp_path / ANSWERED
    assert sorted(path.name for path in folder.iterdir()) == [
        "per_instance_stats.json",
        "run_spec.json",
        "scenario.json",
        "scenario_state.json",
        "stats.json",
    ]
    spec = read(folder, "run_spec.json")
    assert spec["name"] == folder.name
    assert spec["adapter_spec"]["model"] == spec["adapter_spec"]["model_deployment"] == "local/served"
    states = read(folder, "scenario_state.json")["request_states"]
    before = read(run_dir, "scenario_state.json")["request_states"]
    assert [one["instance"] for one in states] == [one["instance"] for one in before]
    names = {"model": "local/served", "model_deployment": "local/served"}
    assert [one["request"] for one in states] == [one["request"] | names for one in before]
    results = [one["result"] for one in states]
    assert results[3]["completions"] == [
        {
            "text": "a3",
            "logprob": -0.25,
            "tokens": [{"text": "a3", "logprob": -0.25}],
            "finish_reason": {"reason": "stop"},
        }
    ]
    assert list(results[3]) == ["success", "embedding", "completions", "cached", "request_time", "request_datetime"]
    assert stat(folder, "exact_match") == 1
    assert (folder / "scenario_state.json").read_bytes() == StateFile(folder / "scenario_state.json").load().to_json()


def test_failed_requests_are_no_wrong_answers_and_are_asked_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = write_run(tmp_path / "earlier")
    failing = {1, 4}

    def answer(body: Body) -> Body:
        return {"error": {"message": "broken here"}} if number_of(body) in failing else right(body)

    with serve(answer) as server:
        with pytest.raises(SamplesFailedError, match=r"2 of 6 requests have no answer \(2 error_in_reply\)") as raised:
            ask(run_dir, server, tmp_path, "--max-attempts", "1")
        assert raised.value.exit_code == 4
        assert "request 4: broken here" in capsys.readouterr().err
        folder = tmp_path / ANSWERED
        states = read(folder, "scenario_state.json")["request_states"]
        assert [number for number, one in enumerate(states) if "result" not in one] == [1, 4]
        assert stat(folder, "exact_match") == 1
        failing.clear()
        asked = server.count
        ask(run_dir, server, tmp_path)
        assert server.count == asked + 2
    states = read(folder, "scenario_state.json")["request_states"]
    assert all(one["result"]["success"] for one in states)


def test_answers_that_are_missing_now_take_no_statistics_away(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier")
    is_broken = False

    def answer(body: Body) -> Body:
        return {"error": {"message": "broken here"}} if is_broken and number_of(body) == 1 else right(body)

    with serve(answer) as server:
        ask(run_dir, server, tmp_path)
        folder = tmp_path / ANSWERED
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        is_broken = True
        with pytest.raises(OutputError, match=r"6 instances .the new ones have 5.*--allow-fewer"):
            ask(run_dir, server, tmp_path, "--max-attempts", "1", "--fresh")
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        asked = server.count
        with pytest.raises(SamplesFailedError):
            ask(run_dir, server, tmp_path, "--max-attempts", "1", "--allow-fewer")
        assert server.count == asked + 1, "answers are kept although they were not written"
    assert len(read(folder, "per_instance_stats.json")) == 5


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (
            lambda run, _: (run / "scenario.json").write_text('{"name": '),
            FileFormatError,
            "scenario.json is incomplete",
        ),
        (lambda _, folder: (folder / "stats.json").mkdir(parents=True), OutputError, "stats.json is a directory"),
        (lambda _, folder: folder.symlink_to("nowhere"), OutputError, "is not a directory"),
    ],
)
def test_what_cannot_be_written_is_not_asked_for(
    tmp_path: Path, spoil: Callable[[Path, Path], object], error: type[Exception], message: str
) -> None:
    run_dir = write_run(tmp_path / "earlier")
    folder = tmp_path / ANSWERED
    folder.parent.mkdir(parents=True)
    spoil(run_dir, folder)
    with serve(right) as server:
        with pytest.raises(error, match=message):
            ask(run_dir, server, tmp_path)
        assert server.count == 0


@pytest.mark.parametrize("less", ["no_tokens", "no_tokenizer", "fewer_instances"])
def test_what_would_take_statistics_away_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, less: str
) -> None:
    (tmp_path / "words_of_a_test.py").write_text("class Words:\n    encode = decode = list\n")
    monkeypatch.syspath_prepend(tmp_path)
    run_dir = write_run(tmp_path / "earlier")
    tokenizer = ("--tokenizer", "words_of_a_test:Words")
    with serve(right) as server:
        ask(run_dir, server, tmp_path, *tokenizer)
        folder = tmp_path / ANSWERED
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        asked = server.count
        if less == "fewer_instances":
            write_run(run_dir, count=5)
        options = {"no_tokens": (*tokenizer, "--chat"), "no_tokenizer": ()}.get(less, tokenizer)
        with pytest.raises(FewerStatisticsError, match="--allow-fewer"):
            ask(run_dir, server, tmp_path, *options, "--fresh")
        assert server.count == asked
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        server.answer = lambda body: f"a{number_of(body)}" if "messages" in body else right(body)
        ask(run_dir, server, tmp_path, *options, "--fresh", "--allow-fewer")
    assert stat(folder, "exact_match") == 1


BUILDER = """#!{python}
import json, shutil, sys
folder = json.load(sys.stdin)["folder"]
for name in ("run_spec.json", "scenario.json", "scenario_state.json"):
    shutil.copy(f"{run_dir}/{{name}}", folder)
"""


@pytest.mark.parametrize("entry", ["orc:task=x", "orc:task=" + "x" * 300])
def test_a_described_run_is_answered_again(tmp_path: Path, entry: str) -> None:
    run_dir = write_run(tmp_path / "built")
    helm_python = tmp_path / "python"
    helm_python.write_text(BUILDER.format(python=sys.executable, run_dir=run_dir))
    helm_python.chmod(0o755)
    failing = {2}

    def answer(body: Body) -> Body:
        return {"error": {"message": "broken here"}} if number_of(body) in failing else right(body)

    with serve(answer) as server:
        options = ("--helm-python", str(helm_python), "--max-attempts", "1")
        with pytest.raises(SamplesFailedError):
            run_command(entry, "--base-url", server.url, "--model", "served", "--output-dir", tmp_path, *options)
        failing.clear()
        asked = server.count
        run_command(entry, "--base-url", server.url, "--model", "served", "--output-dir", tmp_path, *options)
        assert server.count == asked + 1
    assert stat(tmp_path / "runs/assay" / NAME, "exact_match") == 1


@pytest.mark.parametrize("suite", ["", "..", "a/b"])
def test_a_suite_is_the_name_of_a_directory(tmp_path: Path, suite: str) -> None:
    with pytest.raises(SpecificationError, match="cannot be the name of a directory"):
        run_command(write_run(tmp_path), "--base-url", "http://x", "--model", "x", "--suite", suite)


def test_programs_are_run_with_permission_only(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "earlier", count=0)
    (folder / "scenario_state.json").write_bytes(code_run((WRONG,)).to_json())
    spec = (folder / "run_spec.json").read_text()
    (folder / "run_spec.json").write_text(spec.replace('"exact_match"', '"pass"'))
    with serve(lambda _: RIGHT) as server:
        with pytest.raises(UnsupportedTaskError, match="--confirm-run-unsafe-code"):
            ask(folder, server, tmp_path)
        with pytest.raises(DataNotFoundError, match="--code-tests"):
            ask(folder, server, tmp_path, "--confirm-run-unsafe-code")
        assert server.count == 0
        kept = tmp_path / "scenarios/code/HumanEval.jsonl"
        kept.parent.mkdir(parents=True)
        kept.write_text(json.dumps(PROBLEM))
        ask(folder, server, tmp_path, "--confirm-run-unsafe-code")
    assert stat(tmp_path / ANSWERED, "pass") == 1


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier", count=8)
    with ScriptedServer(answer=right, models=["served"]) as server:
        server.hold_after(3)
        words = ["helm", "run", run_dir, "--base-url", server.url, "--model", "served", "--output-dir", tmp_path]
        command = [sys.executable, "-m", "assay", *map(str, words), "--concurrency", "1"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
            deadline = time.monotonic() + 60
            while server.count < 4 and time.monotonic() < deadline:
                time.sleep(0.01)
            child.kill()
        assert not (tmp_path / ANSWERED).exists()
        server.latency = 0.0
        ask(run_dir, server, tmp_path)
        asked = Counter(number_of(request.body) for request in server.requests)
    assert [asked[number] for number in range(3)] == [1, 1, 1]
    assert sorted(asked) == list(range(8))
    assert stat(tmp_path / ANSWERED, "exact_match") == 1


def test_a_stopped_run_says_how_to_go_on(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier", count=8)
    with ScriptedServer(answer=right, models=["served"]) as server:
        server.hold_after(1)
        words = ["helm", "run", run_dir, "--base-url", server.url, "--model", "served", "--output-dir", tmp_path]
        command = [sys.executable, "-m", "assay", *map(str, words), "--concurrency", "1"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
            deadline = time.monotonic() + 60
            while server.count < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            child.terminate()
            _, said = child.communicate(timeout=60)
    assert child.returncode == 143
    assert "stopped by SIGTERM; answers so far are kept" in said


def test_chat_has_no_tokens_and_no_log_probability(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier")
    with serve(lambda body: f"a{number_of(body)}\nmore") as server:
        ask(run_dir, server, tmp_path, "--chat")
    (first, *_) = read(tmp_path / ANSWERED, "scenario_state.json")["request_states"]
    expected = {"text": "a0", "logprob": 0, "tokens": [], "finish_reason": {"reason": "stop"}}
    assert first["result"]["completions"] == [expected]


@pytest.mark.parametrize("kind", ["content_in_parts", "unasked_stream"])
def test_odd_replies_are_answers_at_the_first_attempt(tmp_path: Path, kind: str) -> None:
    run_dir = write_run(tmp_path / "earlier")
    with ScriptedServer(lambda body: f"a{number_of(body)}", models=["served"], faults=[Fault(kind)]) as server:
        ask(run_dir, server, tmp_path, "--chat")
        assert server.count == 6
    assert stat(tmp_path / ANSWERED, "exact_match") == 1


def test_empty_answers_are_scored_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = write_run(tmp_path / "earlier")
    thinking = {"choices": [{"message": {"content": None, "reasoning_content": "hm"}, "finish_reason": "length"}]}
    with serve(lambda body: thinking if number_of(body) < 2 else f"a{number_of(body)}") as server:
        ask(run_dir, server, tmp_path, "--chat")
    assert "2 of 6 answers are empty" in capsys.readouterr().err
    assert stat(tmp_path / ANSWERED, "exact_match") == pytest.approx(4 / 6)


def test_all_completions_are_kept(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier", count=2, num_completions=3, temperature=0.8)

    def three(body: Body) -> Body:
        texts = ["no", f"a{number_of(body)}", "nor"]
        choices = [completion(text, [(text, -1.0 - place)], place) for place, text in enumerate(texts)]
        return {"choices": choices[::-1]}

    with serve(three) as server:
        ask(run_dir, server, tmp_path)
        assert {one.body["n"] for one in server.requests} == {3}
    (first, _) = read(tmp_path / ANSWERED, "scenario_state.json")["request_states"]
    assert [one["text"] for one in first["result"]["completions"]] == ["no", "a0", "nor"]
    assert stat(tmp_path / ANSWERED, "exact_match") == 0
    assert stat(tmp_path / ANSWERED, "exact_match@3") == 1


def test_metrics_that_only_helm_computes_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = write_run(tmp_path / "earlier")
    spec = RunSpec.from_json((run_dir / "run_spec.json").read_bytes())
    theirs = MetricSpec("helm.benchmark.metrics.nonesuch_metrics.NonesuchMetric")
    spec = msgspec.structs.replace(
        spec, metric_specs=[theirs, *spec.metric_specs], annotators=[AnnotatorSpec("helm.nonesuch.Annotator")]
    )
    (run_dir / "run_spec.json").write_bytes(spec.to_json())
    with serve(right) as server:
        ask(run_dir, server, tmp_path)
    said = capsys.readouterr().err
    assert "left out: only HELM computes helm.benchmark.metrics.nonesuch_metrics.NonesuchMetric" in said
    assert "only HELM can run the run's annotators" in said
    assert stat(tmp_path / ANSWERED, "exact_match") == 1


def test_a_score_that_cannot_be_computed_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise MissingDependencyError("scoring needs NLTK's data set punkt_tab")

    monkeypatch.setattr(scorer, "require_word_tokenizer", missing)
    run_dir = write_run(tmp_path / "earlier")
    spec = RunSpec.from_json((run_dir / "run_spec.json").read_bytes())
    (metric, *others) = spec.metric_specs
    metric = msgspec.structs.replace(metric, args={"names": ["exact_match", "bleu_1", "cider", "f1_score"]})
    (run_dir / "run_spec.json").write_bytes(msgspec.structs.replace(spec, metric_specs=[metric, *others]).to_json())
    with serve(right) as server, pytest.raises(MissingDependencyError, match=r"but bleu_1 is left out: .*punkt_tab"):
        ask(run_dir, server, tmp_path)
    assert stat(tmp_path / ANSWERED, "exact_match") == stat(tmp_path / ANSWERED, "f1_score") == 1


def test_a_metric_that_fails_leaves_the_answers_and_the_other_statistics(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier")
    states = json.loads((run_dir / "scenario_state.json").read_bytes())
    for one in states["request_states"]:
        one["instance"]["references"].append({"output": {"text": "too"}, "tags": ["correct"]})
    (run_dir / "scenario_state.json").write_text(json.dumps(states, indent=2))
    spec = RunSpec.from_json((run_dir / "run_spec.json").read_bytes())
    translation = MetricSpec("helm.benchmark.metrics.machine_translation_metrics.MachineTranslationMetric")
    spec = msgspec.structs.replace(spec, metric_specs=[translation, *spec.metric_specs])
    (run_dir / "run_spec.json").write_bytes(spec.to_json())
    with serve(right) as server, pytest.raises(MetricFailedError, match=r"but MachineTranslationMetric fails: .* id0"):
        ask(run_dir, server, tmp_path)
    assert stat(tmp_path / ANSWERED, "exact_match") == 1
    assert all("result" in one for one in read(tmp_path / ANSWERED, "scenario_state.json")["request_states"])


@pytest.mark.parametrize("kind", ["Broken", "Numbers"])
def test_a_tokenizer_that_fails_is_named_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "failing_words_of_a_test.py").write_text(
        "class Broken:\n    def encode(self, text): return 1 / 0\n    decode = str\n"
        "class Numbers:\n    def encode(self, text): return len(text)\n    decode = str\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with serve(right) as server:
        with pytest.raises(SpecificationError, match="the tokenizer fails on the text"):
            ask(write_run(tmp_path / "earlier"), server, tmp_path, "--tokenizer", f"failing_words_of_a_test:{kind}")
        assert server.count == 0


@pytest.fixture(scope="module")
def imaginary(tmp_path_factory: pytest.TempPathFactory) -> ImaginaryModel:
    return ImaginaryModel(HuggingFaceTokenizer(write_small_tokenizer(tmp_path_factory.mktemp("tokenizer"))))


@pytest.mark.parametrize("way", ["vllm", "vllm_without_echo"])
def test_prompts_are_scored_where_the_server_can(tmp_path: Path, imaginary: ImaginaryModel, way: str) -> None:
    run_dir = write_run(tmp_path / "earlier", count=2, max_tokens=0, echo_prompt=True, stop_sequences=[])
    with serve(getattr(imaginary, way)) as server:
        ask(run_dir, server, tmp_path)
    (first, _) = read(tmp_path / ANSWERED, "scenario_state.json")["request_states"]
    (scored,) = first["result"]["completions"]
    ids = imaginary.tokenizer.encode("question 0:")
    expected = [imaginary.logprob(ids[:place], ids[place]) for place in range(1, len(ids))]
    assert [token["logprob"] for token in scored["tokens"]] == [0, *expected]
    assert scored["text"] == "question 0:"
    assert scored["logprob"] == pytest.approx(sum(expected))


def test_perplexity_is_the_same_however_the_server_tells_log_probabilities(
    tmp_path: Path, imaginary: ImaginaryModel
) -> None:
    run_dir = write_run(tmp_path / "earlier", count=2, max_tokens=0, echo_prompt=True, stop_sequences=[])
    raw = json.loads((run_dir / "scenario_state.json").read_bytes())
    raw["adapter_spec"]["method"] = "language_modeling"
    for one in raw["request_states"]:
        one["num_conditioning_tokens"] = 1
    (run_dir / "scenario_state.json").write_text(json.dumps(raw, indent=2))
    spec = RunSpec.from_json((run_dir / "run_spec.json").read_bytes())
    metric = MetricSpec("helm.benchmark.metrics.language_modeling_metrics.LanguageModelingMetric", {"names": []})
    (run_dir / "run_spec.json").write_bytes(msgspec.structs.replace(spec, metric_specs=[metric]).to_json())
    logprobs = []
    for way in (imaginary.vllm, imaginary.vllm_without_echo):
        with serve(way) as server:
            ask(run_dir, server, tmp_path / way.__name__)
        logprobs.append(stat(tmp_path / way.__name__ / ANSWERED, "logprob"))
    ids = [imaginary.tokenizer.encode(f"question {number}:") for number in range(2)]
    expected = [sum(imaginary.logprob(one[:place], one[place]) for place in range(1, len(one))) for one in ids]
    assert logprobs == pytest.approx([sum(expected) / 2] * 2)


@pytest.mark.parametrize("way", ["shifted", "llama_cpp", "transformers_serve"])
def test_prompts_are_not_scored_where_the_server_cannot(tmp_path: Path, imaginary: ImaginaryModel, way: str) -> None:
    run_dir = write_run(tmp_path / "earlier", count=2, max_tokens=0, echo_prompt=True)
    with serve(getattr(imaginary, way)) as server, pytest.raises(UnsupportedTaskError, match="log-likelihood"):
        ask(run_dir, server, tmp_path)


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    run_dir = write_run(tmp_path / "earlier")
    with pytest.raises(SpecificationError, match="leave out --base-url"):
        run_command(run_dir, "--model", "hf:x", "--base-url", "http://localhost:1")
    with pytest.raises(SpecificationError, match="sent unchanged"):
        run_command(run_dir, "--model", "x", "--base-url", "http://localhost:1", "--max-eval-instances", "3")
    with pytest.raises(SpecificationError, match="--stream"):
        run_command(run_dir, "--model", "x", "--base-url", "http://localhost:1", "--stream")
    with pytest.raises(SpecificationError, match="CREATOR/NAME"):
        run_command(run_dir, "--model", "x", "--base-url", "http://localhost:1", "--helm-name", "a,b")
    own = write_run(tmp_path / "runs/assay" / NAME)
    options = ("--model", "x", "--base-url", "http://localhost:1", "--helm-name", "m/m", "--output-dir", tmp_path)
    for what in (own, own / "scenario_state.json"):
        with pytest.raises(SpecificationError, match="would be replaced"):
            run_command(what, *options)
    (run_dir / "run_spec.json").unlink()
    with pytest.raises(SpecificationError, match=r"no run_spec\.json"):
        run_command(run_dir, "--model", "x", "--base-url", "http://localhost:1")
