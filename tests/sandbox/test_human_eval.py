"""Verdicts beside those of the copy of the HumanEval harness that lm-eval carries for cruxeval."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from assay.sandbox.human_eval import checked_program, passed, verdict_words
from assay.sandbox.pool import Sandbox

SECONDS = 2.0

TESTS = "\nassert add(2, 3) == 5\nassert add(-1, 1) == 0"
RIGHT = "def add(a, b):\n    return a + b"

PROGRAMS = [
    RIGHT + TESTS,
    "def add(a, b):\n    return a * b" + TESTS,
    "def add(a, b)\n    return a + b" + TESTS,
    "def add(a, b):\n    while True: pass" + TESTS,
    "import sys\nsys.exit(0)" + TESTS,
    "import os\nos._exit(0)" + TESTS,
    "exit()" + TESTS,
    "raise SystemExit" + TESTS,
    "raise KeyboardInterrupt" + TESTS,
    RIGHT + "\nraise Exception",
    "import os\nwhile True: os.fork()" + TESTS,
    "import os\nos.system('true')\n" + RIGHT + TESTS,
    "import subprocess\nsubprocess.run(['true'])\n" + RIGHT + TESTS,
    "import multiprocessing\nmultiprocessing.Pool(2)\n" + RIGHT + TESTS,
    "from multiprocessing.pool import ThreadPool\nThreadPool(2).map(abs, [1])\n" + RIGHT + TESTS,
    "open('big', 'wb').write(b'x' * 10**7)\n" + RIGHT + TESTS,
    "print('x' * 10**7)\n" + RIGHT + TESTS,
    "print(3, file=__import__('sys').stderr)\n" + RIGHT + TESTS,
    "import sys\nsys.stdout.close()\n" + RIGHT + TESTS,
    "import sys\nsys.stdout.close()\nprint(1)\n" + RIGHT + TESTS,
    "import sys\nsys.stdout.write(b'1')\n" + RIGHT + TESTS,
    "import sys\nsys.stdout.buffer\n" + RIGHT + TESTS,
    "import os\nos.close(0)\nos.close(1)\nos.close(2)\n" + RIGHT + TESTS,
    "import os\nos.environ['X'] = '1'\nassert os.environ['OMP_NUM_THREADS'] == '1'\n" + RIGHT + TESTS,
    "import os\nos.getcwd()\n" + RIGHT + TESTS,
    "import os\nos.listdir('.')\n" + RIGHT + TESTS,
    "import resource\n" + RIGHT + TESTS,
    "import tkinter\n" + RIGHT + TESTS,
    "import shutil\nshutil.rmtree('/nonexistent', ignore_errors=True)\n" + RIGHT + TESTS,
    "input()\n" + RIGHT + TESTS,
    "import sys\nsys.stdin.read()\n" + RIGHT + TESTS,
    "help(int)\n" + RIGHT + TESTS,
    "if __name__ == '__main__':\n    raise Exception\n" + RIGHT + TESTS,
    "import unittest\nunittest.main()\n" + RIGHT + TESTS,
    "import tempfile\ntempfile.mkdtemp()\n" + RIGHT + TESTS,
    "import threading\nthreading.Thread(target=print).start()\n" + RIGHT + TESTS,
    "import threading, time\nthreading.Thread(target=time.sleep, args=(0.2,)).start()\n" + RIGHT + TESTS,
    "def f():\n    f()\ntry:\n    f()\nexcept RecursionError:\n    pass\n" + RIGHT + TESTS,
    "try:\n    while True: pass\nexcept Exception:\n    pass\n" + RIGHT + TESTS,
    "import signal\nsignal.alarm(0)\nsignal.setitimer(signal.ITIMER_REAL, 0)\nwhile True: pass",
    "import time\ntime.sleep(0.1)\n" + RIGHT + TESTS,
    "from __future__ import annotations\n" + RIGHT + TESTS,
    "x: int = 1\n" + RIGHT + TESTS,
    "class E(Exception):\n    def __str__(self): raise ValueError\nraise E",
    "import numpy as np\nassert np.arange(3).sum() == 3\n" + RIGHT + TESTS,
    "import scipy.stats\n" + RIGHT + TESTS,
    "import pandas as pd\nassert pd.Series([1, 2]).sum() == 3\n" + RIGHT + TESTS,
    "import asyncio\nasyncio.run(asyncio.sleep(0))\n" + RIGHT + TESTS,
    "'\0'",
    "",
]

_ORACLE = f"""
import json, sys, warnings
from concurrent.futures import ThreadPoolExecutor
warnings.simplefilter("ignore")
import lm_eval.evaluator, lm_eval.tasks, scipy.stats  # imported beforehand, see _seconds
from lm_eval.tasks.cruxeval.utils import check_correctness
if __name__ == "__main__":
    with ThreadPoolExecutor(4) as threads:  # as code_eval does it
        verdicts = threads.map(lambda program: check_correctness(program, timeout={SECONDS}), json.load(sys.stdin))
    print("VERDICTS", json.dumps(list(verdicts)))
"""


def _seconds(program: str) -> float:
    """A busy machine needs seconds to import a large library, which the oracle has done beforehand."""
    return 30.0 if program.startswith(("import numpy", "import scipy", "import pandas")) else SECONDS


def test_verdicts_are_the_harness() -> None:
    oracle = subprocess.run(
        [sys.executable, "-c", _ORACLE], input=json.dumps(PROGRAMS), capture_output=True, text=True, check=True
    )
    expected = json.loads(oracle.stdout.rpartition("VERDICTS ")[2])
    with Sandbox() as sandbox:
        results = sandbox.run([checked_program(program, _seconds(program)) for program in PROGRAMS])
    different = [
        (program, result)
        for program, result, right in zip(PROGRAMS, results, expected, strict=True)
        if passed(result) is not right
    ]
    assert different == []
    assert 10 < sum(expected) < len(expected) - 10


@pytest.mark.parametrize(
    ("program", "passes", "words"),
    [
        ("print('x' * 10**8)", True, "passed"),
        ("hog = []\nwhile True: hog.append(bytearray(10**8))", False, None),
        ("import posix\nwhile True: posix.fork()", False, None),
        ("import posix\nif posix.fork(): posix._exit(0)\n", False, None),
        ("import os\nassert 'HOME' in os.environ and len(os.environ) < 5, os.environ", True, "passed"),
        ("while True: print('x' * 10**6)", False, "timed out"),
        ("import os\nos._exit(0)", False, "timed out"),
        ("assert False, 'why'", False, "failed: why"),
    ],
)
def test_programs_that_nobody_should_run_unconfined(program: str, passes: bool, words: str | None) -> None:
    with Sandbox(width=1) as sandbox:
        [result] = sandbox.run([checked_program(program, SECONDS)])
    assert passed(result) is passes
    assert words is None or verdict_words(result) == words
