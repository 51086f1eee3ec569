"""HELM's metrics: Assay beside crfm-helm, on the same scenario states.

    python -m benchmarks.helm --helm-python PATH [--scale 0.1] [--workloads short long exact] [--rows 1000000]

PATH is the interpreter of an environment with crfm-helm; Assay runs in this one. Three runs are made: many short
answers with text overlap scores, few long ones, and very many with exact match alone. Each side reads the same
``scenario_state.json`` and computes BasicGenerationMetric in one process, then writes ``per_instance_stats.json``.
The statistics of both sides are compared. With ``--rows N`` Assay alone evaluates N rows as a stream from disk.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_WORDS = (  # noqa: SIM905 - a list of thirty quoted words is no easier to read
    "the a of to and in quick brown fox jumps over lazy dogs running eastern cities government economic "
    "results answer question people model language number seventeen history physics Obama's don't "
    "state-of-the-art U.S. 3.5"
).split()
_TOKENS = re.compile(r" ?\w+| ?[^\s\w]+|\s")

WORKLOADS: dict[str, tuple[int, int, list[str]]] = {
    "short": (10_000, 8, ["exact_match", "f1_score", "rouge_l", "bleu_1", "bleu_4"]),
    "long": (1_000, 200, ["exact_match", "f1_score", "rouge_l", "bleu_1", "bleu_4"]),
    "exact": (50_000, 3, ["exact_match"]),
}
"""Name -> rows, words in an answer, scores."""


def write_state(path: Path, rows: int, words: int) -> None:
    """Write a run of ``rows`` questions, most of whose answers overlap with the right one."""
    seeded = random.Random(0)
    spec = {"method": "generation", "num_outputs": 1, "model": "m/m", "model_deployment": "m/m"}
    with path.open("w") as file:
        file.write('{\n  "adapter_spec": ' + json.dumps(spec, indent=2).replace("\n", "\n  ") + ",\n")
        file.write('  "request_states": [')
        for row in range(rows):
            text = json.dumps(_request_state(seeded, row, words), indent=2).replace("\n", "\n    ")
            file.write((",\n    " if row else "\n    ") + text)
        file.write("\n  ]\n}")


def _request_state(seeded: random.Random, row: int, words: int) -> dict[str, Any]:
    gold = [seeded.choice(_WORDS) for _ in range(words)]
    answer = [word if seeded.random() < 0.7 else seeded.choice(_WORDS) for word in gold]
    tokens = [{"text": " " + word, "logprob": -seeded.random()} for word in answer]
    references = [{"output": {"text": " ".join(gold)}, "tags": ["correct"]}, {"output": {"text": "x"}, "tags": []}]
    completion = {
        "text": " ".join(answer),
        "logprob": sum(token["logprob"] for token in tokens),  # type: ignore[misc]
        "tokens": tokens,
        "finish_reason": {"reason": "stop"},
    }
    return {
        "instance": {"input": {"text": f"question {row}"}, "references": references, "split": "test", "id": f"id{row}"},
        "train_trial_index": 0,
        "request": {"model_deployment": "m/m", "model": "m/m", "prompt": f"Q: question {row}\nA:"},
        "result": {
            "success": True,
            "embedding": [],
            "completions": [completion],
            "cached": False,
            "request_time": 0.5,
            "request_datetime": 0,
        },
        "num_train_instances": 0,
        "prompt_truncated": False,
        "num_conditioning_tokens": 0,
    }


class _Tokenizer:
    def encode(self, text: str) -> list[str]:
        return _TOKENS.findall(text)

    def decode(self, tokens: list[str]) -> str:
        return "".join(tokens)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    value = work()
    return value, time.process_time() - begin


def _peak_mb() -> float:
    """Peak memory of this program alone; what getrusage tells includes the process that it was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_assay(state_path: Path, names: list[str], folder: Path) -> dict[str, Any]:
    """CPU seconds of evaluating in memory and of writing."""
    from assay.helm import MetricSpec, ScenarioState, StateFile, create_metric
    from assay.helm.stat_writer import PerInstanceWriter, write_list
    from assay.helm.tokenization import EncoderService

    state, load = _timed(StateFile(state_path).load)
    metric = create_metric(MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": names}))
    # HELM imports at start what is imported here at the first use; neither is part of the figures.
    importlib.import_module("scipy.optimize")  # ten rows may have nothing to fit
    metric.evaluate(ScenarioState(state.adapter_spec, state.request_states[:10]), EncoderService(_Tokenizer()))
    result, evaluate = _timed(lambda: metric.evaluate(state, EncoderService(_Tokenizer()), parallelism=1))

    def write() -> None:
        with (folder / "spool").open("w+b") as spool, (folder / "per_instance_stats.json").open("wb") as file:
            writer = PerInstanceWriter(spool)
            for record in result.per_instance_stats:
                writer.write(record)
            write_list(file, [spool])

    _, writing = _timed(write)
    stats = [stat.to_builtins() for stat in result.aggregated_stats]
    return {"load": load, "evaluate": evaluate, "write": writing, "peak_mb": _peak_mb(), "stats": stats}


def measure_assay_stream(state_path: Path, names: list[str], folder: Path) -> dict[str, Any]:
    """CPU seconds and peak memory of evaluating from disk to disk."""
    from assay.helm import MetricSpec, StateFile, create_metric
    from assay.helm.run_directory import RunFiles, write_run
    from assay.helm.tokenization import EncoderService

    metric = create_metric(MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": names}))
    files = RunFiles(None, None, StateFile(state_path))
    _, seconds = _timed(lambda: write_run(files, [metric], folder, EncoderService(_Tokenizer()), parallelism=1))
    return {"seconds": seconds, "peak_mb": _peak_mb()}


def measure_helm(state_path: Path, names: list[str], folder: Path) -> dict[str, Any]:
    """CPU seconds of HELM's evaluate, and of its way of writing."""

    class Windows:
        def get_num_tokens(self, text: str) -> int:
            return len(_TOKENS.findall(text))

    def helm(name: str) -> Any:
        return importlib.import_module(f"helm.{name}")

    factory = helm("benchmark.window_services.window_service_factory").WindowServiceFactory
    factory.get_window_service = staticmethod(lambda *_: Windows())
    codec, metric = helm("common.codec"), helm("benchmark.metrics.metric")
    state_class = helm("benchmark.adaptation.scenario_state").ScenarioState
    state, load = _timed(lambda: codec.from_json(state_path.read_bytes(), state_class))
    spec = metric.MetricSpec("helm.benchmark.metrics.basic_metrics.BasicGenerationMetric", {"names": names})
    result, evaluate = _timed(lambda: metric.create_metric(spec).evaluate(state, None, "", 1))
    asdict, without_nans = helm("common.general").asdict_without_nones, helm("benchmark.runner")

    def write() -> None:
        records = without_nans.remove_per_instance_stats_nans(result.per_instance_stats)
        (folder / "per_instance_stats.json").write_text(json.dumps(list(map(asdict, records)), indent=2))

    _, writing = _timed(write)
    stats = [asdict(stat) for stat in result.aggregated_stats]
    return {"load": load, "evaluate": evaluate, "write": writing, "peak_mb": _peak_mb(), "stats": stats}


MEASURES = {"assay": measure_assay, "stream": measure_assay_stream, "helm": measure_helm}


def _in_process(python: str, side: str, state_path: Path, names: list[str], folder: Path) -> dict[str, Any]:
    from assay.tasks.nltk_data import require_punkt_tab

    require_punkt_tab()
    nltk_data = os.pathsep.join(importlib.import_module("nltk").data.path)
    done = subprocess.run(
        # -P: this file is called helm, and must not hide the package
        [python, "-P", __file__, "--measure", side, str(state_path), ",".join(names), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NLTK_DATA": nltk_data},
        check=True,
    )
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> bool:
    def exact(stats: list[dict[str, Any]]) -> list[str]:
        return [json.dumps(stat) for stat in stats if not stat["name"]["name"].startswith("platt_")]

    return exact(ours) == exact(theirs)


def compare(helm_python: str, scale: float, names: list[str]) -> None:
    """Print both sides' figures for each workload."""
    print(f"{'':8}{'':>8}  {'evaluate':>24}  {'write':>24}  {'peak MB (HELM, Assay, streamed)':>36}  same")
    for name in names:
        rows, words, scores = WORKLOADS[name]
        rows = max(1, int(rows * scale))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scenario_state.json"
            write_state(path, rows, words)
            helm, assay, stream = (
                _in_process(python, side, path, scores, Path(folder))
                for python, side in ((helm_python, "helm"), (sys.executable, "assay"), (sys.executable, "stream"))
            )
        columns = [
            f"{helm[key]:8.2f} {assay[key]:6.2f} s {helm[key] / assay[key]:5.0f} x" for key in ("evaluate", "write")
        ]
        memory = f"{helm['peak_mb']:8.0f} {assay['peak_mb']:6.0f} {stream['peak_mb']:6.0f}"
        same = _same(assay["stats"], helm["stats"])
        print(f"{name:8}{rows:8}  {columns[0]:>24}  {columns[1]:>24}  {memory:>36}  {same}", flush=True)


def stream(sizes: list[int]) -> None:
    """Print cost per row and memory of runs of growing size, from disk to disk."""
    for rows in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scenario_state.json"
            write_state(path, rows, 3)
            size = path.stat().st_size / 1e6
            measured = _in_process(sys.executable, "stream", path, ["exact_match"], Path(folder))
        each = measured["seconds"] / rows * 1e6
        print(f"{rows:9} rows, {size:7.0f} MB: {each:5.0f} µs a row, peak {measured['peak_mb']:.0f} MB", flush=True)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--helm-python", help="interpreter that has crfm-helm")
    parser.add_argument("--scale", type=float, default=1.0, help="part of each workload's rows")
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--rows", type=int, nargs="+", help="evaluate runs of these sizes as streams")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        side, state_path, names, folder = arguments.measure
        print(json.dumps(MEASURES[side](Path(state_path), names.split(","), Path(folder))))
        return
    if arguments.helm_python:
        compare(arguments.helm_python, arguments.scale, arguments.workloads)
    if arguments.rows:
        stream(arguments.rows)


if __name__ == "__main__":
    main()
