"""What happened to answers after the model wrote them is undone, and what that regains is measured, not estimated."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay import diagnosis
from assay.diagnosis import Cause
from assay.diagnosis.alterations import regained
from assay.diagnosis.endings import same_beginning
from assay.diagnosis.evidence import Evidence
from assay.diagnosis.repairs import REPAIRS, steps_of
from assay.evaluation import Evaluation
from tests.diagnosis.runs import run
from tests.diagnosis.simulated import SimulatedModel
from tests.diagnosis.test_triage import UNKNOWN

PROMPT = "Tom has 3 apples and buys 4 more at the market in town.\nHow many apples does he have?\nAnswer:"
SAID = "He has 3 + 4 = 7 apples. #### 7"


def undone(text: str) -> tuple[list[str], str]:
    steps = steps_of(text, PROMPT)
    return [step.name for step in steps], steps[-1].text if steps else text


def full_width(text: str) -> str:
    return "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text)


@pytest.mark.parametrize(
    ("text", "names", "repaired"),
    [
        (html.escape(f"<p>{SAID}</p>"), ["html"], SAID),
        (html.escape(html.escape("3 < 4 & 5 > 2")), ["html"], "3 < 4 & 5 > 2"),
        ("".join(f"&#{ord(letter)};" for letter in SAID), ["html"], SAID),
        (full_width(SAID), ["full width"], SAID),
        (SAID.replace(" ", "Ġ"), ["pieces"], SAID),
        ("▁" + SAID.replace(" ", "▁").replace("#", "#"), ["pieces"], SAID),
        (" ".join(SAID), ["letters apart"], SAID),
        (f"assistant\n\n{SAID}", ["template"], SAID),
        (f"<|im_start|>assistant\n{SAID}<|im_end|>\n<|im_start|>user\nNext?", ["template"], SAID),
        ("assistant", ["template"], ""),
        (f"{PROMPT} {SAID}", ["echo"], f" {SAID}"),
        (f"<think>3 and 4 make 8? No.</think>\n{SAID}", ["reasoning"], SAID),
        (f"3 and 4 make 8? No.</think>\n{SAID}", ["reasoning"], SAID),
        (f"{SAID}\nQuestion: Ann has 2. And now?", ["next question"], f"{SAID}\n"),
        (html.escape(f"<think>8?</think>{SAID}"), ["html", "reasoning"], SAID),
    ],
)
def test_what_is_undone(text: str, names: list[str], repaired: str) -> None:
    assert undone(text) == (names, repaired)


@pytest.mark.parametrize(
    "text",
    [
        SAID,
        "",
        "a < b and c > d, AT&T",
        "The assistant: no role of a chat begins here",
        "答案是 7，因为 3 加 4 等于 7。",
        "def f(x):\n    return x[0] < 3 and x[1] > 4",
        "<think>unfinished thoughts",
        "<think>only thoughts</think>",
        "A B C D",
    ],
)
def test_what_needs_no_repair(text: str) -> None:
    assert undone(text) == ([], text)


def test_every_repair_has_its_own_name() -> None:
    assert len({repair.name for repair in REPAIRS}) == len(REPAIRS)


def damaged(damage: Callable[[str], str]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    model = SimulatedModel(loops=0)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        reply = json.loads(json.dumps(model(body)))
        message = reply["choices"][0]["message"]
        message["content"] = damage(message["content"])
        return dict(reply)

    return answer


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    return run(tmp_path_factory.mktemp("healthy"), damaged(str))


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        (lambda text: html.escape(text.replace("####", "<b>####</b>")), Cause.TEXT_ALTERED),
        (full_width, Cause.TEXT_ALTERED),
        (lambda text: " ".join(text), Cause.TEXT_ALTERED),
        (lambda text: f"It may be 0.\n#### 0\n</think>\n\n{text}", Cause.REASONING_LEAKED),
    ],
)
def test_the_repaired_score_is_that_of_the_undamaged_answers(
    damage: Callable[[str], str], cause: Cause, healthy: Evaluation, tmp_path: Path
) -> None:
    candidate = run(tmp_path, damaged(damage))
    whole = healthy.scores[0].value
    for found in (diagnosis.triage(candidate.results_file), candidate.triage):
        assert found is not None
        assert found.causes[0].cause is cause, found.headline
        assert found.causes[0].score_repaired == pytest.approx(whole)
        assert f"in place of {found.score:.2f}, by the task's own filter and metric" in found.headline


def test_a_repair_that_lowers_the_score_is_no_cause(tmp_path: Path) -> None:
    candidate = run(tmp_path, damaged(lambda text: f"{text}\n</think>\n\nI hope this helps you today."))
    found = diagnosis.triage(candidate.results_file)
    assert Cause.REASONING_LEAKED not in [finding.cause for finding in found.causes], found.headline


def test_what_a_repair_regains_follows_those_before_it() -> None:
    sample = diagnosis.facts.SampleFacts(
        task="t", doc_id=0, score=0.0, altered=("html", "reasoning"), repaired=(0.25, 1.0)
    )
    assert regained("html", sample) == 0.25
    assert regained("reasoning", sample) == 0.75
    assert regained("template", sample) == 0.0


@pytest.mark.parametrize(("key", "is_found"), [("exact_match,none", True), ("pass@1,create_test", False)])
def test_the_same_beginning_is_looked_for_in_short_answers_alone(key: str, is_found: bool) -> None:
    """Programs that are wrong may well be the same: ``return None``."""
    samples = [
        diagnosis.facts.SampleFacts(
            task="t",
            doc_id=number,
            score=float(number % 2),
            is_generated=True,
            excerpt="" if number % 2 else "Sure! Here it is",
            is_unfinished=number % 2 == 0,
            stops=("\n",),
            finish_reason="stop",
        )
        for number in range(40)
    ]
    found = list(same_beginning(Evidence(samples, UNKNOWN, None, {key})))
    assert [(each.finding.cause, each.finding.is_cause) for each in found] == [(Cause.STOPPED_EARLY, True)] * is_found
