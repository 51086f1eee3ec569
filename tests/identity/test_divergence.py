"""Two servers are compared token by token: the figures are right, and the phase of a fault is named."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cli import main
from assay.errors import UnjudgeableError
from assay.identity import Candidate, DivergenceOptions, DivergenceReport, Identity, diverge
from assay.identity.divergence.phases import Pattern, Phase, TextErrors, find_pattern
from assay.identity.divergence.positions import PositionDifference, differences
from assay.identity.divergence.prompts import NamedPrompt
from assay.identity.divergence.run import _against_limit
from assay.identity.divergence.summary import TextDifference
from assay.identity.divergence.three_way import three_way
from assay.identity.positions import Alternative, Position
from assay.stats.divergence_bounds import bhattacharyya_of_normals, divergence_at_most
from assay.types import ModelSpec
from tests.servers.planted import NAME, PlantedServer, SmallModel

pytestmark = pytest.mark.slow

PROMPTS = [NamedPrompt(f"p{place}", ({"role": "user", "content": f" ba be bi {'bo' * place}"},)) for place in range(20)]


class Damaged(SmallModel):
    """Reads and generates with an error in all logits."""

    def _read(self, ids: list[int], batch: int) -> list[Any]:
        self.noise, kept = self.damage, self.noise
        try:
            return super()._read(ids, batch)
        finally:
            self.noise = kept


def compared(candidate: SmallModel, noise: SmallModel | None = None, **options: Any) -> Candidate:
    return report(candidate, noise, **options).candidates[0]


def report(candidate: SmallModel, noise: SmallModel | None = None, **options: Any) -> DivergenceReport:
    with PlantedServer() as good, PlantedServer(candidate) as other, PlantedServer(noise) as healthy:
        spec, found, third = (ModelSpec(base_url=each.url, model=NAME) for each in (good, other, healthy))
        return diverge(
            spec,
            [("candidate", found)],
            PROMPTS,
            DivergenceOptions(**{"tokens": 24, **options}),
            None if noise is None else third,
        )


def test_the_same_model_has_no_error() -> None:
    found = compared(SmallModel(), at_most=0.001)
    assert found.verdict is Identity.SAME
    assert found.summary.divergence.value < 1e-6
    assert found.summary.same_top == 1
    assert found.summary.pattern == Pattern(phase=Phase.NONE)
    assert found.summary.diverged == 0


def test_other_weights_are_an_even_error() -> None:
    found = compared(Damaged(), at_most=0.01)
    assert found.verdict is Identity.DIFFERENT
    assert found.summary.pattern.phase is Phase.EVEN
    assert found.summary.divergence.low > 0.01
    assert found.summary.absolute_delta is not None
    assert found.summary.absolute_delta.low > 0


def test_another_template_is_told_by_its_tokens() -> None:
    class Doubled(SmallModel):
        def _prompt(self, body: dict[str, Any]) -> list[int]:
            ids = super()._prompt(body)
            return [900, *ids] if "messages" in body else ids

    found = compared(Doubled(), at_most=10.0)
    assert found.summary.pattern.phase is Phase.PROMPT
    assert found.summary.other_prompts == len(PROMPTS)
    assert found.verdict is Identity.DIFFERENT
    assert "number of tokens" in found.reason


@pytest.mark.parametrize(
    ("fault", "phase", "detail"),
    [("decode_from_8", Phase.FROM, {"start": 8}), ("decode_each_16", Phase.BLOCKS, {"block": 16})],
)
def test_faults_of_decoding_are_found_where_they_are(fault: Any, phase: Phase, detail: dict[str, int]) -> None:
    found = compared(SmallModel(fault, damage=0.3)).summary.pattern
    assert (found.phase, found.in_decoding) == (phase, True)
    assert {name: getattr(found, name) for name in detail} == detail


def test_an_error_under_load_is_named() -> None:
    class Crowded(Damaged):
        def _read(self, ids: list[int], batch: int) -> list[Any]:
            return super()._read(ids, batch) if batch > 4 else SmallModel._read(self, ids, batch)

    assert compared(Crowded(), at_once=8).summary.pattern.phase is Phase.UNDER_LOAD
    assert compared(Crowded(), at_once=0).summary.pattern.phase is Phase.NONE


def test_noise_is_told_from_more_than_noise() -> None:
    within = compared(Damaged(damage=0.05), Damaged(damage=0.05))
    assert within.noise is not None
    assert within.verdict is Identity.SAME
    beyond = compared(Damaged(damage=0.4), Damaged(damage=0.05))
    assert beyond.noise is not None
    assert beyond.verdict is Identity.DIFFERENT
    assert beyond.noise.sigma_ratio is not None
    assert beyond.noise.sigma_ratio > 4
    assert beyond.noise.bhattacharyya < within.noise.bhattacharyya <= 1


def test_without_a_limit_it_is_measured_and_not_judged() -> None:
    found = report(Damaged())
    assert found.candidates[0].verdict is None
    assert found.exit_code == 0


logits = st.lists(st.floats(-8, 8), min_size=4, max_size=40)


@given(logits, st.floats(0, 3), st.integers(1, 20), st.integers(0, 10**6))
def test_the_bounds_hold_the_true_divergence(values: list[float], move: float, count: int, seed: int) -> None:
    source = random.Random(seed)
    p, q = np.array(values), np.array([value + source.uniform(-move, move) for value in values])
    p, q = p - np.logaddexp.reduce(p), q - np.logaddexp.reduce(q)
    true = float(np.exp(p) @ (p - q))
    here, there = ({str(each): float(x[each]) for each in np.argsort(-x)[:count]} for x in (p, q))
    most_move = float((p - q).max())
    assert divergence_at_most(here, there, max(0.0, most_move)) >= true - 1e-9
    (found,) = differences([_position(here)], [_position(there)])
    assert found.divergence <= true + 1e-4


def _position(top: dict[str, float]) -> Position:
    return Position("x", None, tuple(Alternative(token, value) for token, value in top.items()))


def test_without_a_common_token_there_is_no_upper_bound() -> None:
    assert divergence_at_most({"a": -0.1}, {"b": -0.1}) == math.inf
    assert divergence_at_most({"a": -0.1}, {"a": -0.1}) == 0


@pytest.mark.parametrize("spread", [0.5, 1.0, 1.5])
def test_no_verdict_is_wrong_more_often_than_stated(spread: float) -> None:
    source = random.Random(5)
    paths, wrong = 2000, [0, 0]
    for _ in range(paths):
        sizes = [0.01 * math.exp(source.gauss(-(spread**2) / 2, spread)) for _ in range(20)]  # the limit is their mean
        verdicts = _against_limit([text_of_size(size) for size in sizes], 0.01, 0.05)
        wrong = [count + is_wrong for count, is_wrong in zip(wrong, verdicts, strict=True)]
    assert max(wrong) <= 0.05 * paths


def test_one_prompt_far_away_keeps_a_candidate_from_being_the_same() -> None:
    noise = [text_of_size(0.001, f"p{place}") for place in range(20)]
    far = [*noise[:-1], text_of_size(0.1, "p19")]
    assert three_way(noise, noise).is_far_in_one is False
    assert three_way(far, noise).is_far_in_one is True
    with pytest.raises(UnjudgeableError, match="no prompt in common"):
        three_way(noise, [text_of_size(0.001, "other")])


def text_of_size(size: float, name: str = "p") -> TextDifference:
    return TextDifference(
        name=name,
        prompt="",
        reference_prompt_tokens=1,
        candidate_prompt_tokens=1,
        positions=(difference(0, size, 0.5),),
    )


def difference(index: int, size: float, doubt: float) -> PositionDifference:
    return PositionDifference(
        index=index, token="x", delta=None, is_same_top=True, overlap=1, divergence=size, divergence_at_most=size,
        reference_rank=1, candidate_rank=1, margin=1, doubt=doubt, reference_top="x", candidate_top="x",
    )  # fmt: skip


def test_normals_overlap() -> None:
    assert bhattacharyya_of_normals(0, 1, 0, 1) == pytest.approx(1)
    assert bhattacharyya_of_normals(0, 1, 0, 3) == pytest.approx(math.sqrt(0.6))
    assert bhattacharyya_of_normals(0, 1, 4, 1) == pytest.approx(math.exp(-2))
    assert (bhattacharyya_of_normals(0, 0, 0, 0), bhattacharyya_of_normals(0, 0, 0, 1)) == (1, 0)


def errors(size: Any, source: random.Random, texts: int = 20, length: int = 24) -> list[TextErrors]:
    """Texts whose errors are lognormal, of a size that depends on the position."""
    found = []
    for number in range(texts):
        before = 11 + number
        positions = []
        for index in range(length):
            doubt = source.random()
            value = size(index, before + index) * doubt * math.exp(source.gauss(0, 1))
            positions.append(difference(index, value, doubt))
        found.append(TextErrors(positions, before))
    return found


@pytest.mark.parametrize(
    ("size", "phase"),
    [
        (lambda _, __: 1e-5, Phase.NONE),
        (lambda _, __: 0.01, Phase.EVEN),
        (lambda index, _: 0.5 if index == 0 else 0.01, Phase.PROMPT),
        (lambda index, _: 0.2 if index >= 9 else 0.002, Phase.FROM),
        (lambda _, place: 0.5 if place % 16 == 0 else 0.01, Phase.BLOCKS),
        (lambda index, _: 0.001 * math.exp(index / 5), Phase.GROWING),
    ],
)
def test_patterns_are_found(size: Any, phase: Phase) -> None:
    found = find_pattern(errors(size, random.Random(1)))
    assert found.phase is phase
    if phase is Phase.FROM:
        assert found.start == 9
    if phase is Phase.BLOCKS:
        assert found.block == 16


def test_an_even_error_is_hardly_ever_given_another_pattern() -> None:
    source = random.Random(2)
    named = [find_pattern(errors(lambda _, __: 0.01, source, texts=8)).phase for _ in range(100)]
    assert named.count(Phase.EVEN) >= 98


def test_few_texts_show_no_pattern() -> None:
    assert find_pattern(errors(lambda _, __: 0.01, random.Random(3), texts=3)).phase is Phase.UNKNOWN


def run(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(["diverge", *arguments])
    return ended.value.code


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts"
    prompts.write_text("\n".join(f" ba be bi {'bo' * place}" for place in range(20)))
    kept, bundle = tmp_path / "reference.json", tmp_path / "bundle"
    with PlantedServer() as good, PlantedServer(Damaged()) as bad:
        here = ("--model", NAME, "--prompts", str(prompts), "--tokens", "8", "--at-most", "0.001")
        assert run("--reference", good.url, "--candidate", good.url, *here, "--save-reference", str(kept)) == 0
        assert capfd.readouterr().out.splitlines()[2].startswith("SAME  ")
        both = ("--candidate", f"good={good.url}", "--candidate", f"bad={bad.url}")
        assert run("--reference", str(kept), *both, *here, "--bundle", str(bundle)) == 1
        shown = capfd.readouterr().out
        assert "DIFFERENT  bad: mean divergence" in shown
        assert "weights, precision or kernels" in shown
        assert run("--reference", str(kept), "--candidate", bad.url, *here, "--json") == 1
        assert json.loads(capfd.readouterr().out)["candidates"][0]["verdict"] == "different"
        program = bundle / "bad" / "ask.py"
        asked = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
        assert "top_logprobs" in asked.stdout, asked.stderr
    told = json.loads((bundle / "bad" / "bundle.json").read_text())
    assert told["candidate_top"]
    assert told["difference"]["index"] == told["first_divergent_index"]
    assert len(told["request"]["prompt"]) == told["prompt_tokens"][1] + told["first_divergent_index"]
    assert (bundle / "bad" / "ask.sh").read_text().startswith(f"curl -s {bad.url}")
    assert told["candidate_software"] == told["reference_software"]
    assert "$OPENAI_API_KEY" in (bundle / "bad" / "ask.sh").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--reference", "hf:some/model"), "cannot read with hf:some/model"),
        (("--reference", "results_x.json"), "a run keeps texts without log-probabilities"),
        (("--reference", "absent.json"), "cannot read the reference absent.json"),
        (("--reference", "http://127.0.0.1:9", "--flipped"), "--from"),
        (("--reference", "http://127.0.0.1:9", "--at-most", "-1"), "at_most is -1"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments, "--candidate", "http://127.0.0.1:9", "--model", "m") == 2
    assert said in capfd.readouterr().err
