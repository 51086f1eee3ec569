"""How much memory a sample takes of a run with default options: ``python -m benchmarks.memory [COUNT …]``.

Runs of as many short questions, each in a process of its own, against a server that answers at once. What a sample
takes is the difference between the peaks of the largest and the smallest run, over that of their samples.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.lm_eval_tasks import instant_server
from benchmarks.soak import write_task

ANSWER = "The answer is 18"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("counts", nargs="*", type=int, default=[10_000, 50_000, 200_000])
    parser.add_argument("--concurrency", type=int, default=256)
    arguments = parser.parse_args()
    peaks = {}
    print(f"{'samples':>10}{'peak, MB':>10}{'CPU, s':>10}")
    with instant_server(ANSWER) as url, tempfile.TemporaryDirectory(prefix="assay-memory-") as scratch:
        for count in sorted(arguments.counts):
            peaks[count], seconds = measure(count, url, Path(scratch), arguments.concurrency)
            print(f"{count:>10,}{peaks[count] / 1e6:>10.0f}{seconds:>10.1f}", flush=True)
    least, most = min(peaks), max(peaks)
    if most > least:
        print(f"{(peaks[most] - peaks[least]) / (most - least):.0f} bytes a sample from {least:,} to {most:,}")


def measure(count: int, url: str, scratch: Path, concurrency: int) -> tuple[int, float]:
    """Peak memory in bytes and CPU seconds of one run."""
    folder = scratch / str(count)
    write_task(folder, count)
    command = [sys.executable, "-m", "assay", "run", "soak", "--include-path", str(folder), "--base-url", url]
    command += ["--model", "bench", "--concurrency", str(concurrency), "--output-dir", str(folder / "out")]
    environment = {**os.environ, "ASSAY_CACHE_DIR": str(scratch / "cache")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"the run ended with {process.returncode}:\n{(folder / 'log').read_text()[-3000:]}")
    return usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
