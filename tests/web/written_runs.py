"""Writes the files of finished runs with texts of a test's choice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

KEY = "exact_match,get-answer"
_STAMP = "2026-01-01T00-00-00.000001"


def write_run(folder: Path, tasks: Mapping[str, Iterable[Mapping[str, Any]]], model: str = "some-model") -> Path:
    """Write results and samples files as lm-eval does.

    Args:
        folder: where.
        tasks: by task its samples, each with any of ``question``, ``answer``, ``extracted``, ``target``, ``right``.
        model: the model's name.

    Returns:
        The results file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    counts = {}
    for task, samples in tasks.items():
        scores = []
        with (folder / f"samples_{task}_{_STAMP}.jsonl").open("w") as lines:
            for doc_id, sample in enumerate(samples):
                scores.append(float(sample.get("right", True)))
                lines.write(json.dumps(_line(doc_id, sample)) + "\n")
        results[task] = {"alias": task, KEY: sum(scores) / len(scores), "exact_match_stderr,get-answer": 0.01}
        counts[task] = {"original": len(scores), "effective": len(scores)}
    document = {
        "results": results,
        "configs": {task: {"task": task, "output_type": "generate_until"} for task in tasks},
        "n-samples": counts,
        "higher_is_better": {task: {"exact_match": True} for task in tasks},
        "model_name": model,
        "lm_eval_version": "0.4.13",
    }
    file = folder / f"results_{_STAMP}.json"
    file.write_text(json.dumps(document))
    return file


def _line(doc_id: int, sample: Mapping[str, Any]) -> dict[str, Any]:
    question = sample.get("question", f"What is number {doc_id}?")
    target = sample.get("target", str(doc_id))
    examples = [{"role": "user", "content": "What is number one?"}, {"role": "assistant", "content": "1"}]
    turns = [{"role": "system", "content": "Be brief."}, *examples, *examples, {"role": "user", "content": question}]
    answer = sample.get("answer", f"I think that it is {doc_id}")
    return {
        "doc_id": doc_id,
        "doc": {"question": question},
        "target": target,
        "arguments": {"gen_args_0": {"arg_0": [json.dumps(turns)], "arg_1": {"until": ["\n"]}}},
        "resps": [[answer]],
        "filtered_resps": [sample.get("extracted", str(doc_id))],
        "filter": "get-answer",
        "metrics": ["exact_match"],
        "doc_hash": _hash(question),
        "prompt_hash": _hash(json.dumps(turns)),
        "target_hash": _hash(target),
        "exact_match": float(sample.get("right", True)),
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
