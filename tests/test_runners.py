"""The accuracy runners: on all of their real data, beside lm-eval itself, and what they refuse."""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import pickle
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from assay import runners
from assay.errors import SamplesFailedError, ServerUnreachableError, SpecificationError
from assay.runners import Runner, resolve_metric
from assay.types import MetricKey
from tests.servers.scripted import Fault, ScriptedServer, number_for

MODEL = "scripted-model"

WHOLE = {
    "gsm8k": 1319,
    "gsm8k_cot": 1319,
    "gsm8k_cot_llama": 1319,
    "bbh": 6511,
    "ifeval": 541,
    "mmlu_pro": 12032,
}
"""Documents of each runner's data."""


_GSM8K = ("exact_match,flexible-extract", "exact_match,strict-match")
_IFEVAL = [f"{level}_level_{mode}_acc,none" for level in ("prompt", "inst") for mode in ("strict", "loose")]
BENCHMARKS = {
    "gsm8k": ("gsm8k", *_GSM8K),
    "gsm8k_cot": ("gsm8k_cot", *_GSM8K),
    "gsm8k_cot_llama": ("gsm8k_cot_llama", *_GSM8K),
    "bbh": ("bbh_cot_fewshot", "exact_match,get-answer"),
    "ifeval": ("leaderboard_ifeval", *_IFEVAL),
    "mmlu_pro": ("mmlu_pro", "exact_match,custom-extract"),
}
"""Each runner's task and metrics."""


def test_runners_are_functions() -> None:
    for name in WHOLE:
        runner = runner_called(name)
        assert inspect.isfunction(runner)
        assert runner.__name__ == f"run_accuracy_{name}"
        assert pickle.loads(pickle.dumps(runner)) is runner
        assert "limit: documents to ask" in (inspect.getdoc(runner) or "")


def runner_called(name: str) -> Runner:
    runner: Runner = getattr(runners, f"run_accuracy_{name}")
    return runner


@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_of_a_benchmark(name: str, data_dir: Path, tmp_path: Path) -> None:
    runner = runner_called(name)
    with ScriptedServer(answer=number_for, models=[MODEL]) as server:
        metrics, file = runner(server.url, MODEL, str(tmp_path), data_dir=str(data_dir))
    document = json.loads(Path(file).read_text())
    assert sum(task["effective"] for task in document["n-samples"].values()) == WHOLE[name] == server.count
    assert len({body["messages"][-1]["content"] for body in server.answered}) > 0.95 * WHOLE[name]
    task, *keys = BENCHMARKS[name]
    assert set(metrics) == {*keys, *map(stderr_key, keys)} - NO_STDERR
    assert all(math.isfinite(value) and 0 <= value <= 1 for value in metrics.values())
    assert {key: document["results"][task][key] for key in metrics} == metrics


def stderr_key(key: str) -> str:
    return str(MetricKey.read(key).stderr)


NO_STDERR = {"inst_level_strict_acc_stderr,none", "inst_level_loose_acc_stderr,none"}
"""IFEval's instruction-level metrics have none: lm-eval writes "N/A"."""


def test_several_servers(data_dir: Path, tmp_path: Path) -> None:
    with ScriptedServer(models=[MODEL], latency=0.01) as one, ScriptedServer(models=[MODEL], latency=0.01) as other:
        urls = [one.url, other.url]
        runners.run_accuracy_gsm8k(urls, MODEL, str(tmp_path), limit=20, data_dir=str(data_dir))
        assert min(one.count, other.count) > 4
        with pytest.raises(SpecificationError, match="lm-eval asks one server, and 2 are named"):
            runners.run_accuracy_gsm8k(urls, MODEL, str(tmp_path), engine="lm_eval")


# -- beside lm-eval ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gsm8k_answers(data_dir: Path) -> dict[str, str]:
    """The final number of each of GSM8K's questions."""
    lines = (data_dir / "openai" / "gsm8k" / "main" / "test.jsonl").read_text().splitlines()
    return {row["question"]: row["answer"].rpartition("#### ")[2] for row in map(json.loads, lines)}


_ENGLISH = (
    "Dear reader, this is a long and careful answer to the question that you have asked, written in plain English "
    "words, because nobody should ever have to wonder which language it was that the writer of these lines had in mind."
)


_DOCUMENTS = 19
"""IFEval's twentieth has key 1122, for which lm-eval's scorer draws a random letter in every run."""


@pytest.mark.parametrize("name", ["gsm8k", "gsm8k_cot", "ifeval"])
def test_both_engines_ask_and_score_alike(
    name: str, data_dir: Path, gsm8k_answers: dict[str, str], tmp_path: Path
) -> None:
    def answer(body: dict[str, Any]) -> str:
        """Right in two ways that one filter or the other sees, or wrong, or prose that meets some instructions."""
        asked = body["messages"][-1]["content"]
        number = next((right for question, right in gsm8k_answers.items() if question in asked), None)
        # Long and plainly English: lm-eval's language detection is not seeded, and wavers on short or mixed text.
        prose = f"<<Title>>\n\n{_ENGLISH}\n\n* The *first* of {len(asked)} points is this.\n* The second one is that."
        forms = [f"So it is.\n#### {number}", f"The answer is {number}.", "The answer is 7001."]
        return prose if number is None else forms[len(asked) % 3]

    asked, scores = {}, {}
    for engine in ("assay", "lm_eval"):
        with ScriptedServer(answer=answer, models=[MODEL]) as server:
            scores[engine], file = runner_called(name)(
                server.url,
                MODEL,
                str(tmp_path / engine),
                limit=_DOCUMENTS,
                max_concurrent=4,
                data_dir=str(data_dir),
                engine=engine,
            )
            asked[engine] = Counter(json.dumps(request.body, sort_keys=True) for request in server.requests)
        assert Path(file).parent.parent == tmp_path / engine
    assert asked["assay"] == asked["lm_eval"]
    assert asked["assay"].total() == _DOCUMENTS
    assert scores["assay"] == scores["lm_eval"]
    assert any(0 < score < 1 for score in scores["assay"].values())


# -- options ----------------------------------------------------------------------------------------------------------


def asked_by(data_dir: Path, folder: Path, **options: Any) -> list[dict[str, Any]]:
    """The bodies that a run of two questions sends."""
    options = {"limit": 2, "data_dir": str(data_dir), **options}
    with ScriptedServer(models=[MODEL]) as server:
        runners.run_accuracy_gsm8k(server.url, MODEL, str(folder), **options)
        return [{**request.body, "path": request.path} for request in server.requests]


def test_the_options_that_the_interface_names(data_dir: Path, tmp_path: Path) -> None:
    plain = asked_by(data_dir, tmp_path / "plain")
    assert [len(body["messages"]) for body in plain] == [11, 11], "five examples, each a turn of the user and an answer"
    assert {body["path"] for body in plain} == {"/v1/chat/completions"}
    one_turn = asked_by(data_dir, tmp_path / "one", fewshot_as_multiturn=False, num_fewshot=2)
    assert [len(body["messages"]) for body in one_turn] == [1, 1]
    assert one_turn[0]["messages"][0]["content"].count("Question:") == 3
    text = asked_by(data_dir, tmp_path / "text", use_chat=False, max_concurrent=1, timeout=60, extra_args=None)
    assert {body["path"] for body in text} == {"/v1/completions"}
    assert text[0]["prompt"].count("Question:") == 6
    for number, settings in enumerate(["temperature=0.5,max_gen_toks=99", {"temperature": 0.5, "max_gen_toks": 99}]):
        warm = asked_by(data_dir, tmp_path / f"warm {number}", gen_kwargs=settings)
        assert [(body["temperature"], body["max_tokens"]) for body in warm] == [(0.5, 99)] * 2


@pytest.mark.parametrize("engine", ["assay", "lm_eval"])
def test_one_document_a_log_and_no_key_of_the_callers(
    engine: str, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-callers-own")
    options: dict[str, Any] = {"limit": 1, "data_dir": str(data_dir), "engine": engine, "gen_kwargs": {"top_k": 5}}
    with ScriptedServer(answer=number_for, models=[MODEL]) as server:
        metrics, file = runners.run_accuracy_gsm8k(server.url, MODEL, str(tmp_path), **options)
        unasked = len(server.requests)
        runners.run_accuracy_gsm8k(server.url, MODEL, str(tmp_path), api_key="sk-meant", **options)
        keys = [request.headers["authorization"] for request in server.requests]
        assert {request.body["top_k"] for request in server.requests} == {5}
    assert set(keys[:unasked]) == {"Bearer EMPTY"}
    assert set(keys[unasked:]) == {"Bearer sk-meant"}
    assert os.environ["OPENAI_API_KEY"] == "sk-the-callers-own"
    assert [metrics[stderr_key(key)] for key in _GSM8K] == ["N/A", "N/A"]
    log = (tmp_path / "gsm8k_lm_eval.log").read_text()
    assert "|gsm8k|      3|flexible-extract|     5|exact_match|" in log
    assert "sk-" not in log + Path(file).read_text()


def test_a_failed_run_is_told_in_its_log(tmp_path: Path) -> None:
    with pytest.raises(ServerUnreachableError) as caught:
        runners.run_accuracy_gsm8k("http://127.0.0.1:9", MODEL, str(tmp_path))
    assert (tmp_path / "gsm8k_lm_eval.log").read_text() == f"{caught.value}\n"


def test_extra_args_that_assay_has_a_meaning_for(data_dir: Path, tmp_path: Path) -> None:
    arguments = [
        "--system_instruction",
        "Be brief.",
        "--seed",
        "1,2,3,4",
        "--num_fewshot=1",
        "-L",
        "3",
        "--log_samples",
    ]
    bodies = asked_by(data_dir, tmp_path / "extra", extra_args=[*arguments, "--verbosity", "DEBUG"])
    assert len(bodies) == 3
    assert [message["role"] for message in bodies[0]["messages"]] == ["system", "user", "assistant", "user"]
    assert bodies[0]["messages"][0]["content"] == "Be brief."
    warm = asked_by(
        data_dir, tmp_path / "warm", gen_kwargs="top_k=1", extra_args=["--gen_kwargs", "top_k=2", "top_p=1"]
    )
    assert [(body["top_k"], body["top_p"]) for body in warm] == [(2, 1)] * 2
    other_seed = asked_by(data_dir, tmp_path / "seed", extra_args=["--num_fewshot=1", "--seed", "5"])
    assert other_seed[0]["messages"][0]["content"] != bodies[0]["messages"][1]["content"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_concurrency": 3}, "a runner has no option 'max_concurrency'; it has use_chat, .*max_concurrent, "),
        ({"engine": "helm"}, "there is no engine 'helm'; there are assay, lm_eval"),
        ({"extra_args": ["--use_cache", "x"]}, "extra_args has '--use_cache', .* engine=\"lm_eval\" takes it"),
        ({"extra_args": ["--num_fewshot", "few"]}, "extra_args cannot be read: .*--num_fewshot/-f: invalid int"),
        ({"extra_args": ["--seed", "1,2"]}, "the seed '1,2' cannot be read: write one whole number, or four"),
        ({"max_concurrent": 0}, "concurrency is 0; it must be greater than 0"),
        ({"limit": 0}, "limit is 0"),
        ({"gen_kwargs": "hot"}, "gen_kwargs 'hot' cannot be read"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=message) as caught:
        runners.run_accuracy_gsm8k("http://127.0.0.1:9", MODEL, str(tmp_path), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("engine", ["assay", "lm_eval"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gen_kwargs": 5}, "gen_kwargs is 5; it must be a text such as 'temperature=0.6,top_p=1', or settings by"),
        ({"gen_kwargs": {"x": object()}}, "a value of type object"),
        ({"extra_args": "--limit 2"}, r"extra_args is the text '--limit 2'; .* such as \['--limit', '2'\]"),
        ({"api_key": "sk\nx"}, "the API key from the argument api_key holds characters that cannot be sent"),
    ],
)
def test_arguments_of_the_wrong_kind(options: dict[str, Any], message: str, engine: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=message):
        runners.run_accuracy_gsm8k("http://127.0.0.1:9", MODEL, str(tmp_path), engine=engine, **options)


def test_no_generation_settings(data_dir: Path, tmp_path: Path) -> None:
    assert asked_by(data_dir, tmp_path / "none", gen_kwargs=None) == asked_by(data_dir, tmp_path / "empty")


def test_threads_that_call_runners_at_once(data_dir: Path, tmp_path: Path) -> None:
    stdout = sys.stdout
    with ScriptedServer(answer=number_for, models=[MODEL]) as server, ThreadPoolExecutor(4) as threads:

        def run(number: int) -> dict[str, Any]:
            options: dict[str, Any] = {"data_dir": str(data_dir), "api_key": f"sk-{number}"}
            folder = str(tmp_path / str(number))
            return runners.run_accuracy_gsm8k(server.url, MODEL, folder, 3, gen_kwargs={"top_k": number}, **options)[0]

        first, *others = threads.map(run, range(1, 5))
        asked = Counter((request.headers["authorization"], request.body["top_k"]) for request in server.requests)
    assert others == [first] * 3
    assert asked == {(f"Bearer sk-{number}", number): 3 for number in range(1, 5)}
    assert sys.stdout is stdout


def test_options_reach_lm_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, Any] = {}

    def run_lm_eval(*arguments: Any, **options: Any) -> tuple[dict[str, Any], str]:
        called.update(options, arguments=arguments)
        entry = {"alias": "gsm8k", "exact_match,flexible-extract": 0.5, "exact_match_stderr,flexible-extract": "N/A"}
        return {"gsm8k": entry | {"exact_match,strict-match": 0.25, "exact_match_stderr,strict-match": 0.125}}, "file"

    monkeypatch.setattr("assay.lm_eval_process.process.run_lm_eval", run_lm_eval)
    options: dict[str, Any] = {"use_chat": False, "extra_args": ["--seed", "1"], "timeout": None, "max_concurrent": 2}
    metrics, file = runners.run_accuracy_gsm8k("url", "name", "dir", 5, 2048, "top_p=1", engine="lm_eval", **options)
    assert file == "file"
    assert metrics == {
        "exact_match,flexible-extract": 0.5,
        "exact_match_stderr,flexible-extract": "N/A",
        "exact_match,strict-match": 0.25,
        "exact_match_stderr,strict-match": 0.125,
    }
    assert called == {
        "arguments": ("url", "name", "dir", "gsm8k"),
        "limit": 5,
        "max_length": 2048,
        "gen_kwargs": "top_p=1",
        "use_chat": False,
        "extra_args": ["--seed", "1"],
        "max_concurrent": 2,
    }


# -- resolve_metric ---------------------------------------------------------------------------------------------------


def test_metrics_are_picked_by_their_keys() -> None:
    results = {"t": {"acc,none": 0.5, "acc_stderr,none": 0.1}, "u": {"acc,none": 0.9}}
    assert resolve_metric(results, "t", ["acc,none"]) == {"acc,none": 0.5}


def test_a_missing_metric_is_logged_and_below_every_threshold(caplog: pytest.LogCaptureFixture) -> None:
    results = {"t": {"acc,none": 0.5}}
    assert resolve_metric(results, "t", ["acc,none", "f1,none"]) == {"acc,none": 0.5, "f1,none": -1}
    assert resolve_metric(results, "v", ["acc,none"]) == {"acc,none": -1}
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert caplog.messages[0] == "the results of 't' have no metric 'f1,none'; they have acc,none"
    assert "'v'" in caplog.messages[1]


def test_samples_without_a_score_leave_no_number_to_assert_on(data_dir: Path, tmp_path: Path) -> None:
    """Else one right answer of two, the other failed, would be a score of 1.0."""
    options: Any = {"limit": 20, "data_dir": str(data_dir)}
    with ScriptedServer(answer=number_for, models=[MODEL], faults=(Fault("http_400", fraction=0.3),)) as server:
        with pytest.raises(SamplesFailedError, match=r"samples of gsm8k have no score \(bad_request\)"):
            runners.run_accuracy_gsm8k(server.url, MODEL, str(tmp_path), **options)
        server.faults = ()
        metrics, _ = runners.run_accuracy_gsm8k(server.url, MODEL, str(tmp_path), **options)
    assert all(value >= 0 for value in metrics.values())
