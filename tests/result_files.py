"""Writes result files as lm-eval does, with scores of the test's choice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.runs.samples import RunSample, RunSamples

METRIC = "exact_match"
FILTER = "get-answer"
KEY = f"{METRIC},{FILTER}"
SETTINGS = {"generation_kwargs": {"until": ["\n"], "temperature": 0.0}, "repeats": 1}


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sample_line(
    doc_id: int, score: Any, *, task: str, metric: str = METRIC, prompt: str = "", question: str | None = None
) -> str:
    question = question or f"{task} question {doc_id}"
    right = score if isinstance(score, bool | int | float) else 0
    line = {
        "doc_id": doc_id,
        "doc": {"question": question},
        "target": f"right {doc_id}",
        "resps": [[f"I say {'right' if right else 'wrong'} {doc_id}"]],
        "filtered_resps": [f"{'right' if right else 'wrong'} {doc_id}"],
        "filter": FILTER,
        "metrics": [metric],
        "doc_hash": _hash(question),
        "prompt_hash": _hash(prompt + question),
        "target_hash": _hash(f"right {doc_id}"),
        metric: score,
    }
    return json.dumps(line) + "\n"


def write_run(
    folder: Path,
    scores: Mapping[str, Sequence[Any]],
    *,
    stamp: str = "2026-01-01T00-00-00.000001",
    metric: str = METRIC,
    prompt: str = "",
    version: float = 1.0,
    settings: Mapping[str, Any] = SETTINGS,
    group: str | None = None,
    by_size: bool = True,
    higher_is_better: bool = True,
    failed: Mapping[str, Sequence[int]] | None = None,
) -> Path:
    """Write results and samples; ``None`` as a score leaves its document out, as lm-eval does where none was given.

    Returns:
        The results file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = f"{metric},{FILTER}"
    results: dict[str, Any] = {}
    for task, values in scores.items():
        known = [value for value in values if value is not None]
        flat = [item for value in known for item in (value if isinstance(value, list) else [value])]
        results[task] = {"alias": task, key: sum(flat) / len(flat), f"{metric}_stderr,{FILTER}": 0.01}
        lines = [
            sample_line(doc_id, value, task=task, metric=metric, prompt=prompt)
            for doc_id, value in enumerate(values)
            if value is not None
        ]
        (folder / f"samples_{task}_{stamp}.jsonl").write_text("".join(lines))
    members = {}
    if group:
        sizes = {task: sum(value is not None for value in values) if by_size else 1 for task, values in scores.items()}
        total = sum(results[task][key] * size for task, size in sizes.items())
        members[group] = list(scores)
        results[group] = {"alias": group, key: total / sum(sizes.values())}
    document = {
        "results": results,
        "group_subtasks": members,
        "configs": {task: {"task": task, **settings} for task in scores},
        "versions": dict.fromkeys(scores, version),
        "higher_is_better": {task: {metric: higher_is_better} for task in scores},
        "model_name": "m",
        "lm_eval_version": "0.4.13",
    }
    if failed:
        listed = [
            {"task": task, "doc_id": doc_id, "cause": "timed_out", "message": "late"}
            for task, doc_ids in failed.items()
            for doc_id in doc_ids
        ]
        document["assay"] = {"failures": listed}
    file = folder / f"results_{stamp}.json"
    file.write_text(json.dumps(document))
    return file


def read_samples(results_file: Path) -> list[RunSample]:
    """Every sample of a finished run."""
    with RunSamples(results_file) as samples:
        return list(samples)


def read_sample(results_file: Path, task: str, doc_id: int) -> RunSample:
    """One of them."""
    with RunSamples(results_file) as samples:
        return samples.sample(task, doc_id)
