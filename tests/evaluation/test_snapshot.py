"""Whoever watches a run sees how it ended, though the run itself has let go of the samples by then."""

from __future__ import annotations

from pathlib import Path

from assay.evaluation import evaluate
from assay.progress import Progress, Snapshot
from assay.types import Check, ModelSpec, Specification, TaskOptions
from tests.servers.scripted import ScriptedServer

TASKS = Path(__file__).parents[1] / "evaluation_tasks"


class Watcher(Progress):
    def watching(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot


def test_the_last_standing_is_kept(tmp_path: Path) -> None:
    watcher = Watcher()
    with ScriptedServer(lambda _: "The answer is 7") as server:
        evaluation = evaluate(
            Specification(
                tasks=("counting", "naming"),
                model=ModelSpec(base_url=server.url, model="scripted-model"),
                options=TaskOptions(include_path=str(TASKS), limit=20),
                checks=(Check(task="counting", metric="exact_match,get-answer", min=0.9),),
                output_dir=str(tmp_path),
            ),
            watcher,
        )
    naming, counting = watcher.snapshot.standings(["naming", "counting"])
    assert (naming.task, naming.scored, counting.scored) == ("naming", 20, 20)
    score = next(each for each in evaluation.scores if each.task == "counting")
    assert (counting.metric, counting.value, counting.interval) == (score.metric, score.value, score.interval)
    (check,) = watcher.snapshot.checks()
    assert f"{score.value:.4f} on 20 documents" in check


def test_scores_are_let_go_once_they_are_written(tmp_path: Path) -> None:
    watcher = Watcher()
    with ScriptedServer(lambda _: "The answer is 7") as server:
        model = ModelSpec(base_url=server.url, model="scripted-model")
        options = TaskOptions(include_path=str(TASKS), limit=20)
        evaluate(Specification(tasks=("counting",), model=model, options=options, output_dir=str(tmp_path)), watcher)
    (scores,) = vars(watcher.snapshot)["_scores"].values()
    assert scores.scored == 0
    assert not scores.raw_metrics()
