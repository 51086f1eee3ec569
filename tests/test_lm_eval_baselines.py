"""Recorded runs of the real lm-eval serve as baselines: every document, prompt and setting matches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.evaluation import evaluate
from assay.results.check_results import Verdict
from assay.runs.compare import compare
from assay.runs.files import read_run
from assay.types import Check, EarlyStopping
from tests.servers.scripted import ScriptedServer
from tests.test_lm_eval_oracles import Recording

pytestmark = [pytest.mark.oracle, pytest.mark.data]

CASES = {
    "chat_gsm8k": ("gsm8k", "exact_match,strict-match"),
    "chat_gsm8k_cot": ("gsm8k_cot", "exact_match,flexible-extract"),
    "chat_leaderboard_ifeval": ("leaderboard_ifeval", "prompt_level_strict_acc,none"),
    "compl_bbh_cot_fewshot": ("bbh_cot_fewshot", "exact_match,get-answer"),
    "chat_mmlu_pro": ("mmlu_pro", "exact_match,custom-extract"),
    "loglik_mmlu": ("mmlu", "acc,none"),
    "loglik_winogrande": ("winogrande", "acc,none"),
}


def blank(body: dict[str, Any]) -> str:
    return ""


@pytest.mark.parametrize("name", CASES)
def test_the_same_answers_pass_and_others_fail(name: str, oracles_dir: Path, data_dir: Path, tmp_path: Path) -> None:
    recording = Recording(oracles_dir / "lm_eval" / name)
    task, key = CASES[name]
    check = Check(task=task, metric=key, baseline=str(recording.folder), margin=0.05)
    with ScriptedServer(answer=recording.answer, models=["fake-model"]) as server:
        spec = recording.specification(server.url, data_dir, tmp_path / "full")
        full = msgspec.structs.replace(spec, checks=(check,))
        early = msgspec.structs.replace(full, early_stopping=EarlyStopping(), output_dir=str(tmp_path / "early"))

        same = evaluate(full)
        (result,) = same.checks
        assert (result.verdict, result.difference, result.lost, result.gained) == (Verdict.PASS, 0.0, 0, 0)
        assert result.n == read_run(recording.folder).documents
        comparison = compare(recording.folder, same.results_file)
        assert comparison.mismatches == {}
        assert comparison.flips == ()
        assert {change.p_value for change in comparison.changes} == {1.0}

        (result,) = evaluate(early).checks
        assert (result.verdict, result.difference) == (Verdict.PASS, 0.0)
        if recording.tokenizer is not None:
            return  # a server that answers blanks gives no log-likelihoods at all
        asked = {json.dumps(body) for body in recording.bodies}
        assert {json.dumps(request.body) for request in server.requests} <= asked

        server.answer = blank
        (result,) = evaluate(early).checks
        assert result.verdict in (Verdict.FAIL, Verdict.PASS)
        before = read_run(recording.folder)
        value = (before.groups.get(task) or before.tasks[task]).values[key]
        if value > 0.3:  # else so few answers were right that blank ones are not much worse
            assert result.verdict is Verdict.FAIL
            assert result.n < 40
