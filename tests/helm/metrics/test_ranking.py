"""Rankings by hand; test_against_helm compares with HELM's."""

from __future__ import annotations

import pytest

pytest.importorskip("pytrec_eval", reason="pytrec-eval-terrier is not installed")

from assay.errors import SpecificationError, UsageError
from assay.helm import MetricResult, MetricSpec, ScenarioState, create_metric
from tests.helm.states import generation, result, state

CLASS = "helm.benchmark.metrics.ranking_metrics.RankingMetric"
ARGS = {"method": "ranking_binary", "correct_output": "Yes", "wrong_output": "No"}


def ranking(judgements: list[tuple[str, float]], tags: list[list[str]], number: int = 0) -> ScenarioState:
    """One query, with a judgement and its log probability for each passage."""
    states = []
    for index, (text, logprob) in enumerate(judgements):
        one = generation(number, result(text, logprob=logprob), ["passage"] * len(tags)).to_builtins()
        for reference, reference_tags in zip(one["instance"]["references"], tags, strict=True):
            reference["tags"] = reference_tags
        states.append({**one, "reference_index": index, "request_mode": "original"})
    return ScenarioState.from_builtins({**state([], "ranking_binary").to_builtins(), "request_states": states})


def evaluate(run: ScenarioState, *measures: str, **args: object) -> MetricResult:
    return create_metric(MetricSpec(CLASS, {**ARGS, "measure_names": list(measures), **args})).evaluate(run, None)


def test_surest_yes_first_and_surest_no_last() -> None:
    run = ranking(
        [(" no", -0.1), ("Yes", -2.0), ("maybe", -0.1), ("yes ", -0.5), ("No", -3.0)],
        [["relevance=0"], ["relevance=1", "correct"], [], ["relevance=0", "rank=1"], ["relevance=1", "rank=9"]],
    )
    found = evaluate(run, "recip_rank", "recip_rank.1", "recall.2", "success", rank=5)
    assert [(stat.name.name, stat.mean) for stat in found.per_instance_stats[0].stats] == [
        ("RR", 0.5),
        ("RR@1", 0.0),
        ("Recall@2", 0.5),
        ("Success", 0.0),
        ("RR (topk=5)", 0.0),
        ("RR@1 (topk=5)", 0.0),
        ("Recall@2 (topk=5)", 0.0),
        ("Success (topk=5)", 0.0),
        ("ref3_rank", 0),
        ("ref1_rank", 1),
        ("ref4_rank", 2),
        ("ref0_rank", 3),
        ("ref2_rank", 4),
    ]


def test_a_query_without_an_answer_is_not_scored() -> None:
    found = evaluate(ranking([("Yes", -1.0), ("No", -1.0)], [[], ["relevance=0"]]), "recip_rank")
    assert found.unscored == ["instance id0, trial 0: no passage is relevant"]


@pytest.mark.parametrize(
    "args",
    [*({"measure_names": [name]} for name in ("beauty", "recall.x", "recall.0", "ndcg.10", "runid")), {"rank": -1}],
)
def test_wrong_arguments_are_named(args: dict[str, object]) -> None:
    with pytest.raises(SpecificationError, match="RankingMetric"):
        create_metric(MetricSpec(CLASS, {**ARGS, "measure_names": [], **args}))


def test_a_tag_without_a_number_is_named() -> None:
    with pytest.raises(UsageError, match="'relevance' of a reference"):
        evaluate(ranking([("Yes", -1.0)], [["relevance"]]), "recip_rank")
    with pytest.raises(UsageError, match="too large"):
        evaluate(ranking([("Yes", -1.0)], [[f"relevance={2**64}"]]), "recip_rank")
