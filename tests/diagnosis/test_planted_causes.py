"""Causes planted one by one: the first line of the triage names each, and on healthy runs names none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay import diagnosis
from assay.diagnosis import Cause, Triage
from assay.evaluation import Evaluation
from assay.types import Check
from tests.diagnosis.runs import KEY, run
from tests.diagnosis.simulated import SimulatedModel
from tests.servers.scripted import Fault

PLAIN = SimulatedModel()
REASONING = SimulatedModel(reasons=True)
LONG = {"gen_kwargs": {"max_gen_toks": 400}}
NONE_FOUND = "no harness cause found"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return run(tmp_path_factory.mktemp("plain"), PLAIN)


@pytest.fixture(scope="module")
def reasoning(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return run(tmp_path_factory.mktemp("reasoning"), REASONING, options=LONG)


def against(baseline: Evaluation, candidate: Evaluation) -> Triage:
    return diagnosis.triage(candidate.results_file, baseline.results_file)


def named(triage: Triage, cause: Cause) -> None:
    """The first line names the cause."""
    assert triage.causes, triage
    assert triage.causes[0].cause is cause, triage.headline
    assert triage.headline.startswith(f"most probable cause: {triage.causes[0].title}: ")
    assert len(triage.causes[0].examples) == min(3, triage.causes[0].samples)
    assert triage.causes[0].advice


def test_bos_is_doubled(plain: Evaluation, tmp_path: Path) -> None:
    triage = against(plain, run(tmp_path, replace(PLAIN, accuracy=0.58, extra_tokens=1)))
    named(triage, Cause.BOS_DOUBLED)
    assert "240 of 240 (100%) equal prompts have 1 token more" in triage.headline
    assert triage.causes[0].score_repaired == pytest.approx(plain.scores[0].value)


def test_chat_template_is_missing(plain: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, replace(PLAIN, has_template=False))
    named(against(plain, candidate), Cause.CHAT_TEMPLATE_MISSING)
    alone = diagnosis.triage(candidate.results_file)
    named(alone, Cause.CHAT_TEMPLATE_MISSING)  # The model plays the user, too.


def test_max_tokens_are_too_few(plain: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, PLAIN, options={"gen_kwargs": {"max_gen_toks": 24}})
    triage = against(plain, candidate)
    named(triage, Cause.TRUNCATED)
    assert "cut off at 24 tokens; they score 0.00, completed ones 0." in triage.headline
    assert "in the baseline 95 % of these took at most" in triage.causes[0].advice
    assert triage.causes[0].score_without is not None
    assert triage.score is not None
    assert triage.causes[0].score_without > triage.score + 0.2
    named(diagnosis.triage(candidate.results_file), Cause.TRUNCATED)


def test_a_stop_string_ends_the_reasoning(reasoning: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, replace(REASONING, stops_reach_reasoning=True), options=LONG)
    named(against(reasoning, candidate), Cause.STOPPED_IN_REASONING)
    triage = diagnosis.triage(candidate.results_file)
    named(triage, Cause.STOPPED_IN_REASONING)
    assert "'Question:'" in triage.headline


def test_answers_are_not_extracted(plain: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, replace(PLAIN, form="boxed"))
    for triage in (against(plain, candidate), diagnosis.triage(candidate.results_file)):
        named(triage, Cause.EXTRACTION_MISSED)
        assert "\\boxed{}" in triage.headline
        assert triage.score == 0
        assert triage.causes[0].score_repaired == pytest.approx(plain.scores[0].value, abs=0.05)


def test_content_is_null_and_reasoning_is_there(reasoning: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, replace(REASONING, content_is_null=True), options=LONG)
    named(against(reasoning, candidate), Cause.ANSWER_IN_REASONING)
    named(diagnosis.triage(candidate.results_file), Cause.ANSWER_IN_REASONING)


def test_the_server_fails_now_and_then(plain: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, PLAIN, faults=[Fault("http_500", fraction=0.03)])
    for triage in (against(plain, candidate), diagnosis.triage(candidate.results_file)):
        named(triage, Cause.SERVER_FAILURES)
        assert f"{len(candidate.failures)} server_error" in triage.headline


def test_another_model_is_served(plain: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, SimulatedModel(seed=9, accuracy=0.5, name="tiny-model"))
    for triage in (against(plain, candidate), diagnosis.triage(candidate.results_file)):
        named(triage, Cause.WRONG_MODEL)
        assert "asked for 'served', replies name 'tiny-model' (240)" in triage.headline


def test_answers_of_a_coarsely_quantised_model_are_worse_themselves(plain: Evaluation, tmp_path: Path) -> None:
    triage = against(plain, run(tmp_path, replace(PLAIN, noise=0.35)))
    assert triage.headline.startswith(f"{NONE_FOUND}: the answers themselves are worse than the baseline's: ")
    assert "lost" in triage.headline
    assert [finding.cause for finding in triage.causes] == [Cause.ANSWERS_WORSE]


@pytest.mark.parametrize("broken", [{"accuracy": 0.05}, {"broken": frozenset({"gibberish"})}])
def test_one_of_three_endpoints_is_broken(plain: Evaluation, tmp_path: Path, broken: dict[str, Any]) -> None:
    candidate = run(tmp_path, PLAIN, replace(PLAIN, **broken), PLAIN)
    for triage in (against(plain, candidate), diagnosis.triage(candidate.results_file)):
        named(triage, Cause.ONE_ENDPOINT)
        assert triage.causes[0].evidence.startswith("http://127.0.0.1:")
        assert 40 <= triage.causes[0].samples <= 120


MORE_CAUSES = {
    Cause.GIBBERISH: replace(PLAIN, broken=frozenset({"gibberish"})),
    Cause.REFUSED: replace(PLAIN, broken=frozenset({"refusing"})),
    Cause.EMPTY: replace(PLAIN, broken=frozenset({"empty"})),
    Cause.REPETITIVE: replace(PLAIN, loops=0.6),
    Cause.CHAT_TEMPLATE_DOUBLED: replace(PLAIN, accuracy=0.5, extra_tokens=18),
    Cause.BOS_MISSING: replace(PLAIN, accuracy=0.5, extra_tokens=-1),
}


@pytest.mark.parametrize("cause", MORE_CAUSES, ids=str)
def test_more_causes_against_a_baseline(plain: Evaluation, tmp_path: Path, cause: Cause) -> None:
    named(against(plain, run(tmp_path, MORE_CAUSES[cause])), cause)


@pytest.mark.parametrize("cause", [Cause.GIBBERISH, Cause.REFUSED, Cause.EMPTY, Cause.REPETITIVE], ids=str)
def test_more_causes_alone(tmp_path: Path, cause: Cause) -> None:
    named(diagnosis.triage(run(tmp_path, MORE_CAUSES[cause]).results_file), cause)


def test_a_stop_string_ends_answers_too_early(plain: Evaluation, tmp_path: Path) -> None:
    candidate = run(tmp_path, replace(PLAIN, restates=True))
    for triage in (against(plain, candidate), diagnosis.triage(candidate.results_file)):
        named(triage, Cause.STOPPED_EARLY)
        assert "stop strings: 'Question:'" in triage.headline


def test_thoughts_are_cut_off(reasoning: Evaluation, tmp_path: Path) -> None:
    triage = against(reasoning, run(tmp_path, REASONING, options={"gen_kwargs": {"max_gen_toks": 40}}))
    named(triage, Cause.TRUNCATED)
    assert "come from a model that reasons first" in triage.headline


def test_reasoning_leaks_into_the_content(reasoning: Evaluation, tmp_path: Path) -> None:
    leaking = run(tmp_path, replace(REASONING, leaks=True), options=LONG)
    named(against(reasoning, leaking), Cause.STOPPED_IN_REASONING)  # Its thoughts repeat the question.


def test_other_prompts_than_the_baselines(plain: Evaluation, tmp_path: Path) -> None:
    triage = against(plain, run(tmp_path, replace(PLAIN, accuracy=0.5), options={"num_fewshot": 1}))
    named(triage, Cause.PROMPTS_CHANGED)
    assert "prompts: 240 of 240 differ" in triage.headline


HEALTHY: dict[str, tuple[SimulatedModel, tuple[str, ...]]] = {
    "sums": (SimulatedModel(seed=1), ("sums",)),
    "picks": (SimulatedModel(seed=2), ("picks",)),
    "both": (SimulatedModel(seed=3, accuracy=0.9), ("sums", "picks")),
    "weak": (SimulatedModel(seed=4, accuracy=0.3, loops=0.08, odd_form=0.06), ("sums",)),
    "weak at picking": (SimulatedModel(seed=5, accuracy=0.3, loops=0.05, odd_form=0.04), ("picks",)),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_blamed_on_healthy_runs(tmp_path: Path, name: str) -> None:
    model, tasks = HEALTHY[name]
    first = run(tmp_path / "first", model, tasks=tasks)
    assert diagnosis.triage(first.results_file).headline == NONE_FOUND
    # The same server again: a few answers flip either way.
    again = run(tmp_path / "again", replace(model, noise=0.01), tasks=tasks)
    triage = against(first, again)
    assert triage.headline.startswith(f"{NONE_FOUND}: no worse than the baseline"), triage.headline
    assert not triage.causes


def test_a_weak_model_that_misses_a_threshold_is_not_excused(tmp_path: Path) -> None:
    check = Check(task="sums", metric=KEY, min=0.6)
    evaluation = run(tmp_path, SimulatedModel(seed=6, accuracy=0.4, loops=0.05, odd_form=0.03), checks=(check,))
    assert evaluation.triage is not None
    assert evaluation.triage.headline.startswith(f"{NONE_FOUND}: the answers themselves fall 0.")
    assert evaluation.triage.unmet_checks == 1


def test_a_better_model_is_not_blamed(plain: Evaluation, tmp_path: Path) -> None:
    triage = against(plain, run(tmp_path, replace(PLAIN, accuracy=0.85, extra_tokens=1)))
    assert triage.headline.startswith(f"{NONE_FOUND}: no worse than the baseline")
    assert any(finding.cause is Cause.BOS_DOUBLED and not finding.is_cause for finding in triage.findings)


def test_a_run_is_left_unexplained_on_request(tmp_path: Path) -> None:
    evaluation = run(tmp_path, SimulatedModel(seed=6, accuracy=0.1), triage=False)
    assert evaluation.triage is None
    assert "triage" not in evaluation.results["assay"]
