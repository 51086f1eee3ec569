"""Detectors on facts written by hand: what they see, and what they must leave alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from assay.diagnosis.causes import Cause
from assay.diagnosis.decline import answers_worse
from assay.diagnosis.endings import server_cap, without_content
from assay.diagnosis.evidence import Baseline, Evidence, Twin
from assay.diagnosis.facts import SampleFacts
from assay.diagnosis.misplaced import same_answer, swapped
from assay.diagnosis.server import cut_at_one_length, prompt_tokens
from assay.diagnosis.shapes import shape_of
from assay.diagnosis.slices import slices
from assay.diagnosis.texts import Sign
from assay.results.document import ResultsDocument
from assay.types import Outcome

UNKNOWN = ResultsDocument(results={})


def facts(doc_id: int, score: float, **more: Any) -> SampleFacts:
    more = {"task": "t", "outcome": Outcome.ANSWERED, "is_generated": True, **more}
    return SampleFacts(doc_id=doc_id, score=score, **more)


def beside(
    samples: Sequence[SampleFacts], before: Callable[[SampleFacts], SampleFacts], document: ResultsDocument = UNKNOWN
) -> Evidence:
    twins = {each.place: Twin(score=before(each).score, facts=before(each)) for each in samples}
    return Evidence(samples, document, Baseline(source="b", twins=twins))


def prompts(tokens: Callable[[int], int], *, score: float = 1.0, **more: Any) -> list[SampleFacts]:
    return [
        facts(number, score, prompt_hash=number, prompt_tokens=tokens(number), prompt_characters=400 * number, **more)
        for number in range(1, 61)
    ]


def test_prompts_that_all_have_the_same_number_of_tokens_have_been_cut() -> None:
    cut = prompts(lambda number: min(100 * number, 4096), score=0.0)
    good = [facts(number, 1.0, prompt_tokens=50, prompt_characters=200) for number in range(100, 150)]
    (found,) = cut_at_one_length(Evidence([*good, *cut], UNKNOWN, None))
    assert found.finding.cause is Cause.INPUT_CUT
    assert "have exactly 4096 tokens by the server's count" in found.finding.evidence
    assert found.finding.samples == 20


@pytest.mark.parametrize(
    "tokens",
    [lambda number: 100 * number, lambda number: 100 * (number // 10), lambda number: 4096 - 100 * (number % 7)],
)
def test_prompts_whose_token_counts_follow_their_lengths_have_not_been_cut(tokens: Callable[[int], int]) -> None:
    samples = prompts(tokens)
    equal = [facts(number, 0.0, prompt_tokens=100 * 61, prompt_characters=400 * 61) for number in range(100, 120)]
    assert not list(cut_at_one_length(Evidence([*samples, *equal], UNKNOWN, None)))


@pytest.mark.parametrize(
    "left", [lambda number: min(100 * number, 3000), lambda number: 100 * min(number, 30 + number % 3)]
)
def test_longest_prompts_that_have_fewer_tokens_than_in_the_baseline_have_been_cut(left: Callable[[int], int]) -> None:
    before = {each.doc_id: each for each in prompts(lambda number: 100 * number)}
    now = [
        facts(each.doc_id, float(each.doc_id <= 30), prompt_hash=each.doc_id, prompt_tokens=left(each.doc_id))
        for each in before.values()
    ]
    (found,) = prompt_tokens(beside(now, lambda sample: before[sample.doc_id]))
    assert found.finding.cause is Cause.INPUT_CUT
    assert found.finding.is_cause


def test_each_subtask_may_lack_a_system_prompt_of_its_own() -> None:
    lengths = {"a": 200, "b": 88}

    def sample(task: str, number: int, lost: int, score: float) -> SampleFacts:
        more = {"prompt_hash": number, "prompt_tokens": 500 - lost, "system_characters": lengths[task], "messages": 2}
        return facts(number, score, task=task, **more)

    now = [sample(task, number, lengths[task] // 4, 0.0) for task in lengths for number in range(30)]
    (found,) = prompt_tokens(beside(now, lambda each: sample(each.task, each.doc_id, 0, 1.0)))
    assert found.finding.cause is Cause.SYSTEM_PROMPT_IGNORED
    assert "(-50 to -22)" in found.finding.evidence
    other = [sample(task, number, number % 5, 0.0) for task in lengths for number in range(30)]
    (found,) = prompt_tokens(beside(other, lambda each: sample(each.task, each.doc_id, 0, 1.0)))
    assert found.finding.cause is Cause.TOKENIZER_CHANGED


def broken_off(number: int, tokens: int, **more: Any) -> SampleFacts:
    more = {"outcome": Outcome.UNEXTRACTED, "is_unfinished": True, "finish_reason": "stop", "max_tokens": 512, **more}
    return facts(number, 0.0, completion_tokens=tokens, **more)


def test_answers_that_break_off_at_one_length_are_cut_off_by_the_server() -> None:
    right = [facts(number, 1.0, completion_tokens=40 + number) for number in range(60)]
    (found,) = server_cap(Evidence([*right, *(broken_off(number, 46) for number in range(60, 100))], UNKNOWN, None))
    assert found.finding.cause is Cause.TRUNCATED
    assert "break off at exactly 46 tokens, with finish_reason 'stop'" in found.finding.evidence
    assert "a limit of the server's own" in found.finding.advice
    at_all_lengths = [broken_off(number, 20 + number % 9) for number in range(60, 100)]
    assert not list(server_cap(Evidence([*right, *at_all_lengths], UNKNOWN, None)))
    short_by_nature = [broken_off(number, 2) for number in range(60, 100)]
    assert not list(server_cap(Evidence([*right, *short_by_nature], UNKNOWN, None)))


def test_a_single_token_of_an_empty_answer_does_not_tell_a_stop_string_from_the_end_of_text() -> None:
    right = [facts(number, 1.0) for number in range(30)]
    empty = [
        facts(number, 0.0, outcome=Outcome.EMPTY, completion_tokens=1, stops=("Q:",), finish_reason="stop")
        for number in range(30, 60)
    ]
    (found,) = without_content(Evidence([*right, *empty], UNKNOWN, None))
    assert found.finding.cause is Cause.EMPTY
    assert found.finding.advice.startswith("the model ends at once, or the answer begins with a stop string")


def later(number: int, score: float) -> SampleFacts:
    return facts(number, score, time=1e9 + number, prompt_characters=number * 37 % 200)


def test_a_server_that_degrades_and_stays_so_is_told_by_the_change_point() -> None:
    draw = random.Random(1)
    before = [float(draw.random() < 0.7) for _ in range(200)]
    now = [later(number, score * (number < 110 or number % 3 == 0)) for number, score in enumerate(before)]
    (found,) = slices(beside(now, lambda each: facts(each.doc_id, before[each.doc_id])))
    assert found.finding.cause is Cause.ONE_TIME_SPAN
    assert found.finding.is_cause
    assert found.finding.evidence.startswith("from 01:48:30 UTC on: 90 of 200 (45%) samples")


def test_a_loss_spread_over_the_whole_run_has_no_change_point() -> None:
    for seed in range(30):
        draw = random.Random(seed)
        now = [later(number, float(draw.random() < 0.5)) for number in range(200)]
        assert not list(slices(beside(now, lambda each: facts(each.doc_id, 1.0)))), seed


@pytest.mark.parametrize(
    ("moment", "is_told"), [(lambda number: number, True), (lambda number: number * 37 % 240, False)]
)
def test_a_bad_task_that_was_asked_by_itself_may_be_a_bad_time(moment: Callable[[int], int], is_told: bool) -> None:
    now = [
        facts(n, float(n < 180), task="abcd"[n // 60], time=1e9 + moment(n), prompt_characters=n * 41 % 240)
        for n in range(240)
    ]
    found = list(slices(beside(now, lambda each: facts(each.doc_id, 1.0, task=each.task))))
    (of_task,) = [each.finding for each in found if each.finding.cause is Cause.ONE_TASK]
    words = "; asked one after another, from 01:49:40 to 01:50:39 UTC: the time may be the reason"
    assert (words in of_task.evidence) is is_told


def answer(number: int, said: int, *, gold: int | None = None) -> SampleFacts:
    wanted = number * 7 if gold is None else gold
    return facts(number, float(said == wanted), extracted=str(said), gold=str(wanted), time=1e9 + number)


@pytest.mark.parametrize("by", [1, -1, 8])
def test_answers_to_a_neighbouring_document_are_swapped(by: int) -> None:
    now = [answer(number, 7 * (number + by)) if number % 2 else answer(number, 7 * number) for number in range(10, 90)]
    (found,) = swapped(beside(now, lambda each: answer(each.doc_id, 7 * each.doc_id)))
    assert found.finding.cause is Cause.SWAPPED
    assert found.finding.is_cause


def test_other_wrong_answers_are_not_swapped() -> None:
    draw = random.Random(3)
    letters = [draw.randint(0, 3) for _ in range(200)]
    now = [answer(number, draw.randint(0, 3), gold=letters[number]) for number in range(200)]
    assert not list(
        swapped(beside(now, lambda each: answer(each.doc_id, letters[each.doc_id], gold=letters[each.doc_id])))
    )


def test_one_answer_to_far_more_documents_than_it_is_right_for() -> None:
    draw = random.Random(5)
    golds = [draw.randint(0, 3) for _ in range(200)]
    constant = [answer(number, 1 if number % 2 else golds[number], gold=golds[number]) for number in range(200)]
    (found,) = same_answer(Evidence(constant, UNKNOWN, None))
    assert found.finding.cause is Cause.SAME_ANSWER
    assert f"answers are '1', which is right for {golds.count(1)}" in found.finding.evidence
    fair = [
        answer(number, golds[number] if number % 3 else draw.randint(0, 3), gold=golds[number]) for number in range(200)
    ]
    assert not list(same_answer(Evidence(fair, UNKNOWN, None)))


def test_one_sentence_to_many_documents_is_told_where_no_right_answer_is_known() -> None:
    said = shape_of("Please come back later, we are busy")
    canned = [facts(number, 0.0, shape=said) for number in range(30)]
    other = [facts(number, 1.0, shape=shape_of(f"The answer to question {number} is this")) for number in range(30, 90)]
    (found,) = same_answer(Evidence([*canned, *other], UNKNOWN, None))
    assert found.finding.is_cause
    assert "word for word" in found.finding.evidence
    assert not list(same_answer(Evidence([*canned, *other], UNKNOWN, None, {"pass@1,create_test"})))
    right = [facts(number, 1.0, shape=said) for number in range(30)]
    assert not list(same_answer(Evidence([*right, *other], UNKNOWN, None)))


def test_answers_that_are_not_sound_are_not_called_a_worse_model() -> None:
    def lost(number: int, **more: Any) -> SampleFacts:
        return facts(number, float(number % 3 == 0), **(more if number % 3 else {}))

    before = lambda each: facts(each.doc_id, 1.0)  # noqa: E731
    (unsound,) = answers_worse(beside([lost(number, outcome=Outcome.UNEXTRACTED) for number in range(60)], before), [])
    assert unsound.finding.cause is Cause.UNEXPLAINED
    assert "of the lost answers 40 unextracted" in unsound.finding.evidence
    (sound,) = answers_worse(beside([lost(number) for number in range(60)], before), [])
    assert sound.finding.cause is Cause.ANSWERS_WORSE


def test_the_kind_of_a_loss_in_sound_answers() -> None:
    now = [
        facts(number, float(number >= 30), task="ab"[number % 2], prompt_characters=100 if number < 30 else 500)
        for number in range(60)
    ]
    (found,) = answers_worse(beside(now, lambda each: facts(each.doc_id, 1.0, task=each.task)), [])
    assert "30 of them with prompts of 300 characters at most" in found.finding.evidence


def test_a_manner_that_the_baseline_has_too_does_not_make_answers_unsound() -> None:
    manner = {"signs": frozenset({Sign.WRONG_LANGUAGE})}
    now = [facts(number, float(number % 3 == 0), **manner) for number in range(60)]
    (found,) = answers_worse(beside(now, lambda each: facts(each.doc_id, 1.0, **manner)), [])
    assert found.finding.cause is Cause.ANSWERS_WORSE


def test_lost_answers_with_a_mark_that_the_baseline_never_has_are_of_another_form() -> None:
    now = [facts(number, float(number % 2), shape=shape_of("18" if number % 2 else "[[18]]")) for number in range(60)]
    (found,) = answers_worse(beside(now, lambda each: facts(each.doc_id, 1.0, shape=shape_of("18"))), [])
    assert found.finding.cause is Cause.OTHER_FORM
    assert "30 of 60 (50%) answers contain '['" in found.finding.evidence


@pytest.mark.parametrize(("key", "cause"), [("em,none", Cause.OTHER_FORM), ("pass@1,none", Cause.ANSWERS_WORSE)])
def test_wrong_programs_may_be_shorter_by_nature(key: str, cause: Cause) -> None:
    shape = shape_of("return x")
    now = [facts(number, float(number % 2), characters=200 if number % 2 else 20, shape=shape) for number in range(60)]
    evidence = beside(now, lambda each: facts(each.doc_id, 1.0, characters=200, shape=shape))
    evidence.metrics = {key}
    (found,) = answers_worse(evidence, [])
    assert found.finding.cause is cause
