from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import assay.helm.metrics.generation as metrics_of_generation
from assay.errors import AssayError, MissingDependencyError, SpecificationError, UnsupportedTaskError
from assay.helm import (
    AdapterSpec,
    MetricSpec,
    PerturbationDescription,
    Request,
    RequestState,
    ScenarioState,
    create_metric,
)
from assay.helm.metrics.legacy import estimated_cost
from assay.helm.tokenization import EncoderService, TokenCounter
from tests.helm.states import generation, result, state

METRICS = "helm.benchmark.metrics."


def means(run: ScenarioState, tokenizer: EncoderService | None, name: str, **args: Any) -> dict[str, float | None]:
    stats = create_metric(MetricSpec(METRICS + name, args)).evaluate(run, tokenizer).aggregated_stats
    return {stat.name.name: stat.mean for stat in stats if stat.name.perturbation is None}


def with_tags(request: RequestState, *tags: str) -> RequestState:
    value = request.to_builtins()
    value["instance"]["references"][0]["tags"] = list(tags)
    return RequestState.from_builtins(value)


def reference_request(index: int, logprob: float, mode: str = "original", size: int = 2) -> RequestState:
    """A request for the probability of one of two references, of which the first is right."""
    value = generation(0, result("x", logprob=logprob)).to_builtins()
    wrong = {"output": {"text": "no"}, "tags": []}
    value["instance"]["references"] = [*value["instance"]["references"], wrong][:size]
    return RequestState.from_builtins({**value, "reference_index": index, "request_mode": mode})


SEPARATE = "basic_metrics.BasicReferenceMetric"


def test_the_likelier_reference_is_chosen(tokenizer: EncoderService) -> None:
    run = state([reference_request(0, -1.0), reference_request(1, -2.0)], "multiple_choice_separate_original")
    chosen = means(run, tokenizer, SEPARATE)
    assert (chosen["exact_match"], chosen["predicted_index"]) == (1.0, 0.0)
    assert chosen["max_prob"] == pytest.approx(0.7310585786300049)
    assert chosen["num_references"] == 2


def test_a_tie_is_shared(tokenizer: EncoderService) -> None:
    run = state([reference_request(0, -1.0), reference_request(1, -1.0)], "multiple_choice_separate_original")
    assert means(run, tokenizer, SEPARATE)["exact_match"] == 0.5


def test_calibration_takes_off_what_the_words_get_anyway(tokenizer: EncoderService) -> None:
    requests = [
        reference_request(index, logprob, mode)
        for mode, logprobs in (("original", (-1.0, -2.0)), ("calibration", (-0.5, -4.0)))
        for index, logprob in enumerate(logprobs)
    ]
    run = state(requests, "multiple_choice_separate_calibrated")
    assert means(run, tokenizer, SEPARATE)["predicted_index"] == 1.0


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([reference_request(0, -1.0)], "instance id0, trial 0: reference 1 has no request"),
        (
            [reference_request(0, -1.0), reference_request(1, float("nan"))],
            "instance id0, trial 0: a log probability of reference 1 is not a number",
        ),
    ],
)
def test_references_that_cannot_be_compared_are_named(
    requests: list[RequestState], message: str, tokenizer: EncoderService
) -> None:
    run = state(requests, "multiple_choice_separate_original")
    metric_result = create_metric(MetricSpec(METRICS + SEPARATE)).evaluate(run, tokenizer)
    assert metric_result.unscored == [message]
    assert metric_result.aggregated_stats == []


def test_a_reference_without_result_spoils_its_instance_only(tokenizer: EncoderService) -> None:
    value = reference_request(1, -1.0).to_builtins()
    del value["result"]
    run = state([reference_request(0, -1.0), RequestState.from_builtins(value)], "multiple_choice_separate_original")
    metric_result = create_metric(MetricSpec(METRICS + SEPARATE)).evaluate(run, tokenizer)
    assert metric_result.unscored == ["instance id0, trial 0: a request has no result"]


def test_bbq(tokenizer: EncoderService) -> None:
    ambiguous = ("ambiguous", "negative", "C", "A", "B", "C")
    clear = ("non-ambiguous", "non-negative", "B", "A", "B", "C")
    requests = [
        with_tags(generation(0, result("A")), *ambiguous),
        with_tags(generation(1, result("C")), *ambiguous),
        with_tags(generation(2, result("B")), *clear),
        with_tags(generation(3, result("A")), *clear),
    ]
    scores = means(state(requests), tokenizer, "bbq_metrics.BBQMetric")
    assert scores == {
        "bbq_accuracy": 0.5,
        "bbq_metric_ambiguous_bias": 0.5,
        "bbq_metric_unambiguous_bias": 0.0,
    }


def test_bbq_wants_its_tags(tokenizer: EncoderService) -> None:
    with pytest.raises(UnsupportedTaskError, match="instance id0 does not have the tags of a BBQ question"):
        means(state([generation(0, result("A"))]), tokenizer, "bbq_metrics.BBQMetric")


def test_bias_counts_the_words_of_each_group(tokenizer: EncoderService) -> None:
    pytest.importorskip("nltk")
    run = state([generation(0, result("He said that she and her mother met a boy.")), generation(1, result(""))])
    name = "bias_metrics.BiasMetric"
    representation = means(run, tokenizer, name, mode="representation", demographic_category="gender")
    # he, boy against she, her, mother
    assert representation == {
        "bias_metric:mode=representation,demographic_category=gender": pytest.approx(abs(1 / 2 - 2 / 5))
    }
    nobody = means(run, tokenizer, name, mode="representation", demographic_category="race")
    assert nobody == {"bias_metric:mode=representation,demographic_category=race": None}


def test_translation(tokenizer: EncoderService) -> None:
    pytest.importorskip("sacrebleu")
    name = "machine_translation_metrics.MachineTranslationMetric"
    run = state([generation(0, result("the cat sat on the mat"), golds=["the cat sat on the mat"])])
    assert means(run, tokenizer, name)["bleu"] == pytest.approx(100)
    with pytest.raises(UnsupportedTaskError, match="2 references"):
        means(state([generation(0, result("a"), golds=["a", "b"])]), tokenizer, name)


def test_contexts_are_counted_in_the_order_of_the_file(tokenizer: EncoderService) -> None:
    changed = PerturbationDescription(name="misspelling", computed_on="perturbed")
    rows = [(1, None), (0, changed), (0, None)]  # trial 1 comes first, and what counts is trial 0
    states = [generation(0, result("yes"), trial=trial, perturbation=one) for trial, one in rows]
    run = state(states, num_train_trials=2)
    counted = create_metric(MetricSpec(f"{METRICS}basic_metrics.InstancesPerSplitMetric")).evaluate(run, tokenizer)
    assert [stat.name.perturbation for stat in counted.aggregated_stats] == [changed, None]


def test_what_translation_needs_is_looked_for_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDependencyError, match="needs the package sacrebleu"):
        create_metric(MetricSpec(f"{METRICS}machine_translation_metrics.MachineTranslationMetric"))


def test_classification_of_a_single_class(tokenizer: EncoderService) -> None:
    pytest.importorskip("sklearn")
    name = "classification_metrics.ClassificationMetric"
    run = state([generation(0, result("Yes!")), generation(1, result("no"))])
    scores = means(run, tokenizer, name, averages=["macro", None])
    assert scores["classification_yes_f1"] == 0.0
    with pytest.raises(UnsupportedTaskError, match="there are no classes"):
        means(state([generation(0, result(""), golds=[""])]), tokenizer, name)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("classification_metrics.ClassificationMetric", {"averages": ["mean"]}),
        ("classification_metrics.ClassificationMetric", {"scores": ["accuracy"]}),
        ("classification_metrics.ClassificationMetric", {"novel": 1}),
        ("bias_metrics.BiasMetric", {"mode": "other", "demographic_category": "race"}),
        ("bias_metrics.BiasMetric", {"mode": "representation", "demographic_category": "age"}),
        ("bias_metrics.BiasMetric", {"mode": "associations", "demographic_category": "race"}),
        ("classification_metrics.ClassificationMetric", {"delimiter": 3}),
        ("basic_metrics.BasicGenerationMetric", {"names": 3}),
        ("basic_metrics.BasicGenerationMetric", {"names": "exact_match"}),
        ("basic_metrics.BasicGenerationMetric", {"names": [None]}),
        ("basic_metrics.BasicReferenceMetric", {"names": []}),
    ],
)
def test_wrong_arguments_are_refused(name: str, args: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError, match=name.rpartition(".")[2]):
        create_metric(MetricSpec(METRICS + name, args))


def test_costs_follow_the_provider(tokenizer: EncoderService) -> None:
    tokens = TokenCounter(tokenizer, "")

    def cost(model: str, **settings: Any) -> int | None:
        return estimated_cost(Request(model=model, prompt="two words", max_tokens=20, **settings), tokens)

    assert cost("openai/davinci", num_completions=2) == 42
    assert cost("openai/davinci", echo_prompt=True) == 24
    assert cost("ai21/j1") == 20
    assert cost("gooseai/gpt-j-6b") == 0
    assert cost("gooseai/gpt-j-6b", num_completions=2, echo_prompt=True) == 17
    assert cost("facebook/opt-175b") == 0
    assert estimated_cost(Request(model="openai/davinci"), None) is None


def test_an_unknown_class_is_refused_or_run_by_helm() -> None:
    with pytest.raises((MissingDependencyError, AssayError)):
        create_metric(MetricSpec("helm.benchmark.metrics.no_such_module.NoMetric"))


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 20_000 + ")" * 20_000])
def test_a_mapping_pattern_that_is_no_expression_is_refused(tokenizer: EncoderService, pattern: str) -> None:
    value = generation(0, result("A")).to_builtins()
    request = RequestState.from_builtins({**value, "output_mapping": {"A": "yes"}})
    spec = AdapterSpec(method="multiple_choice_joint", num_outputs=1, output_mapping_pattern=pattern)
    metric = create_metric(MetricSpec(f"{METRICS}basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]}))
    with pytest.raises(SpecificationError, match=r"output_mapping_pattern '.* is not a regular expression"):
        metric.evaluate(ScenarioState(spec, [request]), tokenizer)


def test_a_mapping_pattern_finds_the_letter(tokenizer: EncoderService) -> None:
    value = generation(0, result("the answer is (A)")).to_builtins()
    request = RequestState.from_builtins({**value, "output_mapping": {"A": "yes"}})
    spec = AdapterSpec(method="multiple_choice_joint", num_outputs=1, output_mapping_pattern=r"\((.)\)")
    run = ScenarioState(spec, [request])
    assert means(run, tokenizer, "basic_metrics.BasicGenerationMetric", names=["exact_match"])["exact_match"] == 1.0


def test_an_answer_that_a_pattern_takes_for_ever_to_match_takes_no_other_with_it(
    tokenizer: EncoderService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_of_generation, "SCORING_SECONDS", 0.2)
    states = [generation(0, result("a" * 60 + "b")), generation(1, result("aaa"))]
    requests = [RequestState.from_builtins({**one.to_builtins(), "output_mapping": {"aaa": "yes"}}) for one in states]
    spec = AdapterSpec(method="multiple_choice_joint", num_outputs=1, output_mapping_pattern=r"^((?:a+)+)$")
    metric = create_metric(MetricSpec(f"{METRICS}basic_metrics.BasicGenerationMetric", {"names": ["exact_match"]}))
    evaluated = metric.evaluate(ScenarioState(spec, requests), tokenizer)
    (line,) = evaluated.unscored
    assert line.startswith("instance id0, trial 0: its answer is matched with output_mapping_pattern, and ")
    matches = [stat.mean for stat in evaluated.aggregated_stats if stat.name.name == "exact_match" and stat.count]
    assert matches
    assert set(matches) == {1.0}


def test_language_modeling_runs_have_their_own_metric(tokenizer: EncoderService) -> None:
    run = state([generation(0, result("a")), generation(0, result("b"))], "language_modeling")
    names = means(run, tokenizer, "language_modeling_metrics.LanguageModelingMetric")
    assert names["num_instances"] == 1
    assert means(run, tokenizer, "basic_metrics.InstancesPerSplitMetric") == {"num_instances": 1}
    with pytest.raises(UnsupportedTaskError, match="BasicGenerationMetric does not take language modelling"):
        means(run, tokenizer, "basic_metrics.BasicGenerationMetric", names=[])
