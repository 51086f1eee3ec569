"""A small part of ``make parity`` as an ordinary test, and that its comparison sees what it should see."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from assay.tasks.index import task_index
from assay.tasks.patches import datasets_library
from tests.lm_eval_files import RunFiles, differences
from tests.parity import sweep
from tests.parity.differential import Batch, Place, compare

pytestmark = pytest.mark.data

KINDS = (
    "gsm8k_cot_zeroshot",
    "bbh_fewshot_navigate",
    "mmlu_flan_cot_zeroshot_anatomy",
    "mmlu_pro_law",
    "truthfulqa_gen",
    "arc_challenge_chat",
    "mgsm_direct_en",
)


def test_tasks_of_many_kinds_are_asked_and_scored_as_by_lm_eval(data_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("tenacity", reason="lm-eval's client needs its extra api")
    found = compare(Batch(tasks=KINDS, endpoint="chat"), Place(data_dir=data_dir, scratch=tmp_path), limit=2)
    assert found.differences == []
    assert set(found.documents) == set(KINDS)
    assert found.requests == dict.fromkeys(KINDS, 2)


def test_every_change_is_seen() -> None:
    whole = RunFiles(
        {
            "results": {"a": {"acc,none": 0.5, "acc_stderr,none": float("nan")}, "g": {"acc,none": 0.5}},
            "groups": {"g": {"acc,none": 0.5}},
            "versions": {"a": 1},
            "configs": {"a": {"repeats": 1, "metadata": {"num_concurrent": 3}}},
            "chat_template": None,
        },
        {"a": [{"doc_id": 0, "filter": "none", "acc": 1.0}, {"doc_id": 1, "filter": "none", "acc": 0.0}]},
    )
    assert differences(whole, copy.deepcopy(whole)) == []

    def after(*keys: Any, value: Any) -> list[tuple[str | None, str]]:
        changed = copy.deepcopy(whole)
        part: Any = vars(changed)
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value
        return [(each.task, each.place) for each in differences(whole, changed)]

    assert after("results", "results", "a", "acc,none", value=0.25) == [("a", "results: acc,none")]
    assert after("results", "groups", "g", "acc,none", value=0) == [("g", "groups: acc,none")]
    assert after("results", "versions", "a", value=1.0) == [("a", "versions")]
    assert after("results", "versions", "b", value=1) == [("b", "versions")]
    assert after("results", "configs", "a", "repeats", value=2) == [("a", "configs: repeats")]
    assert after("results", "chat_template", value="x") == [(None, "chat_template")]
    assert after("results", "results", "a", value={"acc_stderr,none": float("nan"), "acc,none": 0.5}) == [
        ("a", "results: order of keys")
    ]
    assert after("samples", "a", 1, "acc", value=1.0) == [("a", "sample 1 (none): acc")]
    assert after("samples", "a", value=whole.samples["a"][:1]) == [("a", "sample lines")]
    assert after("samples", "b", value=whole.samples["a"]) == [("b", "sample lines")]


REASONS = {
    "gsm8k": sweep.Reason.NONE,
    "winogrande": sweep.Reason.NONE,
    "nq_open": sweep.Reason.DATA,
    "belebele_fra_Latn": sweep.Reason.DATA,
    "longbench_vcsum": sweep.Reason.SOFTWARE,
    "polemo2_in": sweep.Reason.HUB_METRIC,
    "mbpp": sweep.Reason.UNSAFE_CODE,
    "chartqa_llama": sweep.Reason.MULTIMODAL,
    "wiceu": sweep.Reason.BROKEN,
}


def test_each_task_runs_or_is_refused_for_a_known_reason(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets_library, "_accepts_connection", lambda endpoint: False)
    index = task_index()
    found = sweep.look_at([index.entries[name] for name in REASONS], str(data_dir))
    assert {each.name: each.reason for each in found} == REASONS
    assert {each.endpoint for each in found} == {"chat or completions", "completions"}


def test_a_task_that_only_assay_refuses_is_unexplained(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.tasks.patches import factory

    def once(function: Any) -> Any:
        raise RuntimeError("a fault of Assay's own")

    monkeypatch.setattr(factory, "_prepare_documents_once", once)
    (found,) = sweep.look_at([task_index().entries["arc_easy"]], str(data_dir))
    assert found.reason is sweep.Reason.UNEXPLAINED
    assert "a fault of Assay's own" in found.message
