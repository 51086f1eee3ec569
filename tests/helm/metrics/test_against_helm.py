"""Random runs, evaluated here and by the installed HELM.

HELM may live in an environment of its own: ASSAY_HELM_PYTHON names its interpreter.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from assay.helm import MetricSpec, ScenarioState, UnsafeCode, create_metric
from assay.helm.scoring.scorer import SCORES, require_word_tokenizer
from assay.helm.tokenization import EncoderService
from tests.helm import states as made
from tests.helm.conftest import WordTokenizer

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

METRICS = "helm.benchmark.metrics."
INSTANCES = {"class_name": f"{METRICS}basic_metrics.InstancesPerSplitMetric", "args": {}}
REFERENCES = {"class_name": f"{METRICS}basic_metrics.BasicReferenceMetric", "args": {}}
LANGUAGE_MODELING = {"class_name": f"{METRICS}language_modeling_metrics.LanguageModelingMetric", "args": {"names": []}}

WORDS = [
    "the",
    "a",
    "cat",
    "Running",
    "is",
    "and",
    "1,015",
    "0.5",
    "\\frac12",
    "\\boxed{2}",
    "中文",
    "é",
    "…",
    "🎉",
    "=",
    "",
]
texts = st.lists(st.sampled_from(WORDS) | st.text(max_size=3), max_size=6).map(" ".join)
logprobs = st.sampled_from([0.0, -0.25]) | st.floats(-20, 0)  # HELM makes floats of whole numbers when it reads them
TOKENS = st.sampled_from(["a", " cat", "", "中", "bytes:\\xe2\\x80", " …"])


def generation(names: list[str]) -> dict[str, Any]:
    return {"class_name": f"{METRICS}basic_metrics.BasicGenerationMetric", "args": {"names": names}}


class Peer:
    """The installed HELM in a process of its own."""

    def __init__(self, python: str) -> None:
        import nltk

        require_word_tokenizer()
        self._process = subprocess.Popen(
            [python, str(Path(__file__).parent.parent / "helm_peer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "NLTK_DATA": os.pathsep.join(nltk.data.path)},
        )

    def evaluate(self, state: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
        requests, replies = cast("IO[str]", self._process.stdin), cast("IO[str]", self._process.stdout)
        requests.write(json.dumps({"state": state, "metrics": metrics}) + "\n")
        requests.flush()
        reply: dict[str, Any] = json.loads(replies.readline())
        return reply

    def close(self) -> None:
        cast("IO[str]", self._process.stdin).close()
        cast("IO[str]", self._process.stdout).close()
        self._process.wait()


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    pytest.importorskip("nltk")
    python = os.environ.get("ASSAY_HELM_PYTHON")
    if python is None:
        if importlib.util.find_spec("helm") is None or importlib.util.find_spec("helm.benchmark") is None:
            pytest.skip("crfm-helm is not installed, and ASSAY_HELM_PYTHON names no interpreter that has it")
        python = sys.executable
    running = Peer(python)
    yield running
    running.close()


@st.composite
def completions(draw: st.DrawFn, text: st.SearchStrategy[str]) -> dict[str, Any]:
    tokens = [{"text": draw(TOKENS), "logprob": draw(logprobs)} for _ in range(draw(st.integers(0, 4)))]
    completion: dict[str, Any] = {"text": draw(text), "logprob": draw(logprobs), "tokens": tokens}
    reason = draw(st.sampled_from([None, "stop", "length", "endoftext", "other"]))
    return completion if reason is None else {**completion, "finish_reason": {"reason": reason}}


@st.composite
def results(draw: st.DrawFn, text: st.SearchStrategy[str], size: int) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "success": True,
        "embedding": [],
        "completions": [draw(completions(text)) for _ in range(size)],
        "cached": False,
    }
    if draw(st.booleans()):
        answer["request_time"] = draw(st.sampled_from([0.0, 0.25, 1.75e-05]))
    if draw(st.booleans()):
        answer |= {"batch_size": draw(st.integers(1, 4)), "batch_request_time": 0.7}
    return answer


def perturbations(draw: st.DrawFn) -> list[dict[str, Any] | None]:
    known = [
        {"name": "typos", "robustness": True, "fairness": False, "computed_on": "perturbed", "prob": 0.1},
        {"name": "contraction", "robustness": False, "fairness": True, "computed_on": "perturbed"},
        {"name": "lowercase", "robustness": True, "fairness": True, "computed_on": "perturbed", "seed": 1},
    ]
    chosen = draw(st.lists(st.sampled_from(range(3)), unique=True, max_size=3))
    original: list[dict[str, Any] | None] = [None] if draw(st.booleans()) or not chosen else []
    return [*original, *(known[index] for index in chosen)]


@st.composite
def instances(draw: st.DrawFn, number: int, num_references: int, perturbation: dict[str, Any] | None) -> dict[str, Any]:
    references = [
        {"output": {"text": draw(texts)}, "tags": ["correct"] if index == 0 or draw(st.booleans()) else []}
        for index in range(num_references)
    ]
    instance = {"input": {"text": draw(texts)}, "references": references, "split": "test", "id": f"id{number}"}
    if number % 2:
        instance["sub_split"] = "odd"
    return instance if perturbation is None else {**instance, "perturbation": perturbation}


@st.composite
def states(draw: st.DrawFn, method: str) -> dict[str, Any]:
    trials, num_outputs = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    separate = method.startswith("multiple_choice_separate")
    everything = []
    for number in range(draw(st.integers(1, 4))):
        size = draw(st.integers(1, 3))
        everything += [draw(instances(number, size, perturbation)) for perturbation in perturbations(draw)]
    requests = []
    for trial in range(1 if method == "language_modeling" else trials):
        for instance in everything:
            gold = st.sampled_from([reference["output"]["text"] for reference in instance["references"]])
            for index in range(len(instance["references"]) if separate else 1):
                for mode in ("original", "calibration") if method.endswith("calibrated") else ("original",):
                    state: dict[str, Any] = {"instance": instance}
                    if separate:
                        state |= {"reference_index": index, "request_mode": mode}
                    state |= {
                        "train_trial_index": trial,
                        "request": {"model": "m/m", "model_deployment": "m/m", "prompt": draw(texts)},
                        "result": draw(results(gold | texts, 1 if separate else num_outputs)),
                        "num_train_instances": draw(st.integers(0, 5)),
                        "prompt_truncated": draw(st.booleans()),
                        "num_conditioning_tokens": 0,
                    }
                    if method == "multiple_choice_joint":
                        letters = dict(
                            zip("ABC", (one["output"]["text"] for one in instance["references"]), strict=False)
                        )
                        state["output_mapping"] = letters
                        state["result"]["completions"][0]["text"] = draw(st.sampled_from(["A", " B", "C\n"]))
                    requests.append(state)
    spec = {
        "method": method,
        "num_outputs": num_outputs,
        "num_train_trials": trials,
        "model": "m/m",
        "model_deployment": "m/m",
    }
    return {"adapter_spec": spec, "request_states": requests}


def compare(peer: Peer, state: dict[str, Any], metrics: list[dict[str, Any]]) -> None:
    theirs = peer.evaluate(state, metrics)
    error = str(theirs.get("error", ""))
    if "No module named" in error or "not installed" in error:
        pytest.skip(f"the HELM at hand lacks what its metric needs: {error}")
    assume(not error)
    assert_same(theirs, state, metrics)


def assert_same(
    theirs: dict[str, Any],
    state: dict[str, Any],
    metrics: list[dict[str, Any]],
    unsafe_code: UnsafeCode | None = None,
) -> None:
    ours_state = ScenarioState.from_builtins(state)
    ours = [
        create_metric(MetricSpec(spec["class_name"], spec["args"])).evaluate(
            ours_state, EncoderService(WordTokenizer()), parallelism=1, unsafe_code=unsafe_code
        )
        for spec in metrics
    ]
    assert not [line for result in ours for line in result.unscored]
    stats = [stat.to_builtins() for result in ours for stat in result.aggregated_stats]
    per_instance = [record.to_builtins() for result in ours for record in result.per_instance_stats]
    assert _differences(per_instance, theirs["per_instance_stats"]) == []
    assert [stat["name"] for stat in stats] == [stat["name"] for stat in theirs["stats"]]
    for one, other in zip(stats, theirs["stats"], strict=True):
        if not one["name"]["name"].startswith("platt_"):
            assert json.dumps(one) == json.dumps(other)
        elif one["name"]["name"].startswith("platt_ece"):
            assert math.isclose(one["mean"], other["mean"], rel_tol=1e-6, abs_tol=1e-6)


def _differences(ours: list[Any], theirs: list[Any]) -> list[tuple[str, str]]:
    """Where two lists of records differ, with 1 told from 1.0."""
    pairs = zip(ours, theirs, strict=True)
    return [(json.dumps(one), json.dumps(other)) for one, other in pairs if json.dumps(one) != json.dumps(other)]


often = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@often
@given(state=states("generation"))
def test_generation(peer: Peer, state: dict[str, Any]) -> None:
    names = [
        name for name in SCORES if "wer" not in name and "mer" not in name and "wip" not in name and "cer" not in name
    ]
    compare(peer, state, [generation(names), INSTANCES])


@often
@given(state=states("multiple_choice_joint"))
def test_multiple_choice_joint(peer: Peer, state: dict[str, Any]) -> None:
    names = ["exact_match", "quasi_exact_match", "prefix_exact_match", "quasi_prefix_exact_match"]
    classification = {"class_name": f"{METRICS}classification_metrics.MultipleChoiceClassificationMetric", "args": {}}
    compare(peer, state, [generation(names), REFERENCES, INSTANCES, classification])


@often
@given(state=states("multiple_choice_separate_original"))
def test_multiple_choice_separate(peer: Peer, state: dict[str, Any]) -> None:
    compare(peer, state, [generation([]), REFERENCES, INSTANCES])


@often
@given(state=states("multiple_choice_separate_calibrated"))
def test_multiple_choice_separate_calibrated(peer: Peer, state: dict[str, Any]) -> None:
    compare(peer, state, [REFERENCES, INSTANCES])


@often
@given(state=states("language_modeling"))
def test_language_modeling(peer: Peer, state: dict[str, Any]) -> None:
    compare(peer, state, [LANGUAGE_MODELING])


@often
@given(state=states("generation"), labels=st.none() | st.lists(texts, min_size=1, max_size=3))
def test_classification(peer: Peer, state: dict[str, Any], labels: list[str] | None) -> None:
    args = {"averages": ["macro", "micro", "weighted", None], "scores": ["f1", "precision", "recall"], "labels": labels}
    for request in state["request_states"]:
        request["result"]["completions"] = request["result"]["completions"][:1]
        request["instance"]["references"] = request["instance"]["references"][:1]
    compare(peer, state, [{"class_name": f"{METRICS}classification_metrics.ClassificationMetric", "args": args}])


@often
@given(state=states("generation"))
def test_translation_and_bias(peer: Peer, state: dict[str, Any]) -> None:
    words = ["he", "she", "nurse", "doctor", "cho", "garcia", "boss", "and", "."]
    for number, request in enumerate(state["request_states"]):
        request["result"]["completions"] = request["result"]["completions"][:1]
        request["instance"]["references"] = request["instance"]["references"][:1]
        request["result"]["completions"][0]["text"] += " ".join(words[number % 5 :])
    bias = [
        {"mode": mode, "demographic_category": category, "target_category": target}
        for category in ("race", "gender")
        for mode, target in (("representation", None), ("associations", "profession"), ("associations", "adjective"))
    ]
    compare(
        peer,
        state,
        [
            {"class_name": f"{METRICS}machine_translation_metrics.MachineTranslationMetric", "args": {}},
            *({"class_name": f"{METRICS}bias_metrics.BiasMetric", "args": args} for args in bias),
        ],
    )


@often
@given(state=states("generation"), tags=st.lists(st.sampled_from(["ambiguous", "negative", "x"]), max_size=2))
def test_bbq(peer: Peer, state: dict[str, Any], tags: list[str]) -> None:
    for number, request in enumerate(state["request_states"]):
        non_target = "" if number % 3 == 2 else "B"
        request["instance"]["references"][0]["tags"] = ["correct", *tags, "C", "A", non_target, "C"]
        for place, completion in enumerate(request["result"]["completions"]):
            completion["text"] = ["A", "B", "C", ""][(number + place) % 4]
    compare(peer, state, [{"class_name": f"{METRICS}bbq_metrics.BBQMetric", "args": {}}])


@often
@given(gold=texts, prediction=texts)
def test_error_rates(peer: Peer, gold: str, prediction: str) -> None:
    pytest.importorskip("jiwer")
    instance = {"input": {}, "references": [{"output": {"text": gold}, "tags": ["correct"]}], "id": "id0"}
    request = {
        "instance": instance,
        "train_trial_index": 0,
        "request": {},
        "result": {
            "success": True,
            "embedding": [],
            "completions": [{"text": prediction, "logprob": 0.0, "tokens": []}],
            "cached": False,
        },
        "num_train_instances": 0,
        "prompt_truncated": False,
    }
    state = {"adapter_spec": {"method": "generation", "num_outputs": 1}, "request_states": [request]}
    compare(peer, state, [generation(["wer_score", "mer_score", "wip_score", "cer_score"])])


def test_programs(peer: Peer) -> None:
    problem = {
        "task_id": "HumanEval/x",
        "prompt": "import os\n\ndef double(number):\n",
        "canonical_solution": "    return 2 * number\n",
        "test": "def check(candidate):\n    assert candidate(4) == 8\n",
        "entry_point": "double",
    }
    answers = [
        ("return 2 * number", "return number"),
        ("return number +", "\n    return number + number\n"),
        ("raise SystemExit", "import numpy\n    return int(numpy.int64(2) * number)"),
        ("os.getcwd()\n    return 8", "os._exit(0)"),
        ("while True: pass", "print('x')\n    return 8"),
        ("return int(input() or 8)", "return 8\n\ndef check(candidate): pass"),
    ]
    states = []
    for number, texts in enumerate(answers):
        one = made.generation(number, made.result(*texts), [problem["canonical_solution"]]).to_builtins()
        one["instance"]["references"][0]["test_cases"] = problem
        states.append(one)
    run = {**made.state([], num_outputs=2).to_builtins(), "request_states": states}
    metrics = [generation(["pass", "exact_match", "code_eval_acc"])]
    assert_same(peer.evaluate(run, metrics), run, metrics, UnsafeCode())


@st.composite
def rankings(draw: st.DrawFn) -> dict[str, Any]:
    requests = []
    for number in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 5))
        relevances = draw(st.lists(st.integers(0, 2), min_size=size, max_size=size).filter(any))
        references = [
            {
                "output": {"text": "passage"},
                "tags": [f"relevance={relevance}", *draw(st.sampled_from(([], ["rank=1"], ["rank=3"], ["correct"])))],
            }
            for relevance in relevances
        ]
        for perturbation in perturbations(draw):
            instance = {"input": {"text": "q"}, "references": references, "split": "test", "id": f"id{number}"}
            if perturbation is not None:
                instance["perturbation"] = perturbation
            for index in range(size):
                answer = made.result(draw(st.sampled_from(["Yes", " yes", "no\n", "perhaps"])), logprob=draw(logprobs))
                one = made.generation(number, answer).to_builtins()
                requests.append({**one, "instance": instance, "reference_index": index, "request_mode": "original"})
    return {**made.state([], "ranking_binary").to_builtins(), "request_states": requests}


@often
@given(state=rankings(), rank=st.sampled_from([None, 1, 2]), has_degrees=st.booleans())
def test_ranking(peer: Peer, state: dict[str, Any], rank: int | None, has_degrees: bool) -> None:
    pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is not installed")
    args = {
        "method": "ranking_binary",
        "measure_names": ["recip_rank", "recip_rank.2", "success.1", "recall.2", "ndcg_cut.3", "ndcg_cut", "map"],
        "correct_output": "Yes",
        "wrong_output": "No",
        "rank": rank,
        "multiple_relevance_values": has_degrees,
    }
    metrics = [{"class_name": f"{METRICS}ranking_metrics.RankingMetric", "args": args}]
    theirs = peer.evaluate(state, metrics)
    if theirs.get("error", "").startswith("OptionalDependencyNotInstalled"):
        pytest.skip("HELM's environment has no pytrec_eval")
    assert_same(theirs, state, metrics)
