"""A task's own code may change the working directory: what a run reads and writes stays where the user sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.evaluation import evaluate
from assay.rescoring.rescore import score
from assay.types import ModelSpec, Specification, TaskOptions
from tests.servers.scripted import ScriptedServer

TASK = """
task: wandering
custom_dataset: !function code.documents
test_split: test
output_type: generate_until
doc_to_text: !function code.text
doc_to_target: "{{answer}}"
process_results: !function code.score
generation_kwargs: {until: ["\\n"]}
metric_list:
  - {metric: exact_match, aggregation: !function code.mean, higher_is_better: true}
metadata: {version: 1}
"""
CODE = """
import os
import tempfile
import datasets

def leave():
    os.chdir(tempfile.gettempdir())

def documents(**_):
    leave()
    return {"test": datasets.Dataset.from_list([{"question": f"What is {n}?", "answer": str(n)} for n in range(8)])}

def text(doc):
    leave()
    return doc["question"]

def score(doc, results):
    leave()
    return {"exact_match": float(results[0] == doc["answer"])}

def mean(values):
    leave()
    return sum(values) / len(values)
"""


def test_relative_places_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "wandering.yaml").write_text(TASK)
    (tmp_path / "tasks" / "code.py").write_text(CODE)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    with ScriptedServer(answer=lambda body: body["messages"][-1]["content"][8:-1], models=["scripted"]) as server:
        specification = Specification(
            tasks=("wandering",),
            model=ModelSpec(base_url=server.url, model="scripted"),
            options=TaskOptions(include_path="tasks"),
            output_dir="out",
            probe=False,
        )
        files = [evaluate(specification).results_file for _ in range(2)]
        assert server.count == 16, "the first one is finished"
    assert Path.cwd() == tmp_path
    assert [file.parent for file in files] == [Path("out/scripted")] * 2
    assert score(files[1], output_dir="again").differences == ()
    assert Path.cwd() == tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "out", "tasks", "temporary"]
    assert not list((tmp_path / "temporary").iterdir())
