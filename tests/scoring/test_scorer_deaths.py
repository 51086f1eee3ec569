"""A task's own scorer that ends Assay's process: a few times the run, and never again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.scripted import ScriptedServer

pytestmark = pytest.mark.slow

TASK = """
task: deadly
custom_dataset: !function scorer.documents
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
process_results: !function scorer.score
generation_kwargs: {until: ["\\n"]}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
metadata: {version: 1}
"""
SCORER = """
import os
import datasets

def documents(**_):
    return {"test": datasets.Dataset.from_list([{"question": f"What is {n}?", "answer": str(n)} for n in range(8)])}

def score(doc, results):
    if doc["answer"] == "3" and not os.path.exists("mended"):
        os._exit(139)  # as a crash in a compiled library would
    return {"exact_match": float(results[0] == doc["answer"])}
"""


def run(url: str, folder: Path, *options: str) -> int:
    where = ["--base-url", url, "--model", "scripted", "--include-path", str(folder), "--output-dir", "out"]
    command = [sys.executable, "-m", "assay", "run", "deadly", *where, *options]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode


def test_a_scorer_that_kills_the_run_twice_leaves_one_sample_without_a_score(tmp_path: Path) -> None:
    (tmp_path / "deadly.yaml").write_text(TASK)
    (tmp_path / "scorer.py").write_text(SCORER)
    with ScriptedServer(
        answer=lambda body: str(body["messages"][-1]["content"].split()[-1].rstrip("?")), models=["scripted"]
    ) as server:
        assert [run(server.url, tmp_path) for _ in range(3)] == [139, 139, 4]
        asked = len(server.requests)
        told = newest_results(tmp_path)
        assert told["results"]["deadly"]["sample_len"] == 7
        [failed] = told["assay"]["failures"]
        assert failed["doc_id"] == 3
        assert "died 2 times while this sample was scored" in failed["message"]
        (tmp_path / "mended").touch()
        assert run(server.url, tmp_path, "--retry-failed") == 0
        assert newest_results(tmp_path)["results"]["deadly"]["exact_match,none"] == 1.0
        assert len(server.requests) <= asked + 2  # the sample's, and a look at the server
    assert not list(tmp_path.glob("**/*.scoring"))


def newest_results(folder: Path) -> Any:
    return json.loads(max(folder.glob("out/*/results_*.json")).read_text())
