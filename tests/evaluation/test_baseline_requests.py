"""What is done to requests is part of a baseline's settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.errors import BaselineMismatchError, SpecificationError
from assay.evaluation import Evaluation, evaluate
from assay.gate.explain import explain
from assay.runs.compare import compare
from assay.types import Check, ModelSpec, Specification, TaskOptions
from tests.beside_lm_eval import TASKS
from tests.servers.scripted import ScriptedServer
from tests.servers.wire import Received

RIGHT = "8"


def specification(server: ScriptedServer, folder: Path, **model: Any) -> Specification:
    return Specification(
        tasks=("drawing",),
        model=ModelSpec(base_url=server.url, model="imaginary", **model),
        options=TaskOptions(limit=3, include_path=str(TASKS)),
        output_dir=str(folder),
    )


def against(run: Evaluation, after: Specification, *, allow_mismatch: bool = False) -> Specification:
    check = Check(metric="exact_match,none", baseline=str(run.results_file), margin=0.1, allow_mismatch=allow_mismatch)
    return msgspec.structs.replace(after, checks=(check,))


CHANGES = [
    ({"extra_body": {"reasoning_effort": "low"}}, "requests.extra_body.reasoning_effort"),
    ({"think_end_token": "</think>"}, "requests.think_end_token"),
    ({"drop_fields": ("stop",)}, "requests.drop_fields"),
    ({"dialect": "openai", "model": "o3"}, "requests.extra_body.temperature"),
]


@pytest.mark.parametrize(("model", "says"), CHANGES)
def test_requests_that_are_changed_are_other_settings(model: dict[str, Any], says: str, tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda _: RIGHT, models=["imaginary", "o3"]) as server:
        before = evaluate(specification(server, tmp_path))
        asked = len(server.answered)
        changed = specification(server, tmp_path)
        changed = msgspec.structs.replace(changed, model=msgspec.structs.replace(changed.model, **model))
        with pytest.raises(BaselineMismatchError, match=says.split(".")[1]):
            evaluate(against(before, changed))
        assert len(server.answered) == asked  # refused before the first question
        allowed = evaluate(against(before, changed, allow_mismatch=True))
    assert "requests." in str(allowed.checks[0].reason)
    (mismatches,) = compare(before.results_file, allowed.results_file).mismatches.values()
    assert any("requests." in words for words in mismatches)


def test_other_names_and_the_seed_are_no_other_settings(tmp_path: Path) -> None:
    renamed = {"rename_fields": {"max_tokens": "max_completion_tokens"}, "drop_fields": ("seed",)}
    with ScriptedServer(answer=lambda _: RIGHT, models=["imaginary"]) as server:
        before = evaluate(specification(server, tmp_path))
        run = evaluate(against(before, specification(server, tmp_path, **renamed)))
    assert run.exit_code in (0, 3)


def test_a_server_that_needs_other_requests_is_its_own_baseline(tmp_path: Path) -> None:
    def refuse(request: Received) -> tuple[int, str] | None:
        words = "Unsupported parameter: 'stop' is not supported with this model."
        return (400, words) if "stop" in request.body else None

    with ScriptedServer(answer=lambda _: RIGHT, models=["imaginary"], refuse=refuse) as server:
        spec = msgspec.structs.replace(specification(server, tmp_path), probe=True)
        before = evaluate(spec)
        run = evaluate(against(before, spec))
    assert before.results["assay"]["provenance"]["specification"]["model"]["drop_fields"] == ("stop",)
    assert "does not match" not in str(run.checks[0].reason)


@pytest.mark.parametrize("field", [{"max_tokens": 64}, {"echo": False}, {"logprobs": 0}, {"n": 1}, {"stream": True}])
def test_fields_that_change_log_likelihoods_are_refused(field: dict[str, Any], tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda _: RIGHT, models=["imaginary"]) as server:
        spec = specification(server, tmp_path, endpoint="completions", extra_body=field)
        with pytest.raises(SpecificationError, match="would change log-likelihoods"):
            evaluate(msgspec.structs.replace(spec, tasks=("choosing",)))
        assert not server.answered


@pytest.mark.parametrize("model", [{}, {"dialect": "none"}])
def test_an_explanation_says_that_requests_differ(model: dict[str, Any], tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda _: RIGHT, models=["imaginary"]) as server:
        before = evaluate(specification(server, tmp_path, extra_body={"reasoning_effort": "low"}))
        asked = server.count
        changed = against(before, msgspec.structs.replace(specification(server, tmp_path, **model), probe=True))
        if model:  # nothing will change the requests any more
            with pytest.raises(BaselineMismatchError, match="reasoning_effort"):
                list(explain("main", changed))
        else:
            (outlook,) = explain("main", changed)
            assert any("asked otherwise" in remark and "reasoning_effort" in remark for remark in outlook.remarks)
        (same,) = explain(
            "main", against(before, specification(server, tmp_path, extra_body={"reasoning_effort": "low"}))
        )
        assert not any("asked otherwise" in remark for remark in same.remarks)
        assert server.count == asked


def test_a_baseline_with_a_score_that_is_no_number_is_refused_and_says_so(tmp_path: Path) -> None:
    with ScriptedServer(answer=lambda _: RIGHT, models=["imaginary"]) as server:
        before = evaluate(specification(server, tmp_path))
        samples = next(before.results_file.parent.glob("samples_drawing_*.jsonl"))
        lines = samples.read_text(encoding="utf-8").splitlines()
        broken = json.loads(lines[0]) | {"exact_match": float("nan")}
        samples.write_text("\n".join([json.dumps(broken), *lines[1:]]) + "\n", encoding="utf-8")
        with pytest.raises(BaselineMismatchError, match="it has none whose every document has a number as its score"):
            evaluate(against(before, specification(server, tmp_path / "again")))
