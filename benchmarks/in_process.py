"""Assay's in-process engine beside lm-eval's own ``hf``: processor time and memory on the same model and documents.

Each side runs in a process of its own, one after the other. Processor seconds are compared, not the clock's, so that
what else the machine does counts little. Both load the model and the data.

    ASSAY_DATA_DIR=… python -m benchmarks.in_process MODEL_FOLDER arc_easy --limit 40
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("task")
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=8)
    options = parser.parse_args()
    sides = {"lm-eval": _lm_eval(options), "assay": _assay(options)}
    seconds = {}
    for name, command in sides.items():
        seconds[name], megabytes = _measured(command)
        print(f"{name:8} {seconds[name]:7.1f} s of the processor, {megabytes:6.0f} MB", flush=True)
    print(f"assay takes {seconds['assay'] / seconds['lm-eval']:.2f} of lm-eval's time")


def _measured(command: list[str]) -> tuple[float, float]:
    """Processor seconds and peak memory of a command."""
    with tempfile.TemporaryDirectory() as folder:
        child = subprocess.Popen([*command, folder], env=_environment(), stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{command[:5]} failed")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


_LM_EVAL = """
import sys
from assay.tasks.library import load_tasks
from assay.types import TaskOptions
from lm_eval.evaluator import evaluate
from lm_eval.models.huggingface import HFLM
model, task, limit, size, _ = sys.argv[1:]
tasks = load_tasks([task], TaskOptions(limit=float(limit)), {}).tasks
lm = HFLM(pretrained=model, dtype="float32", batch_size=int(size), device="cpu")
evaluate(lm, task_dict=dict(tasks), limit=float(limit), bootstrap_iters=0)
"""


def _lm_eval(options: argparse.Namespace) -> list[str]:
    given = [options.model, options.task, str(options.limit), str(options.batch_size)]
    return [sys.executable, "-c", _LM_EVAL, *given]


def _assay(options: argparse.Namespace) -> list[str]:
    model = ["--model", f"hf:{options.model}", "--dtype", "float32", "--device", "cpu"]
    size = ["--batch-size", str(options.batch_size), "--limit", str(options.limit)]
    plain = ["--no-report", "--no-triage", "--fresh", "--output-dir"]
    return [sys.executable, "-m", "assay", "run", options.task, *model, *size, *plain]


if __name__ == "__main__":
    main()
