"""What importing NLTK leaves out."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
from assay.helm.scoring import nltk_package

inside, done = threading.Event(), threading.Event()
seen = []

def other():
    inside.wait(60)
    import scipy.special
    seen.append(scipy.special)
    done.set()

thread = threading.Thread(target=other)
thread.start()
with nltk_package._hidden({"scipy"}):
    try:
        import scipy
    except ModuleNotFoundError as error:
        assert error.name == "scipy"
    else:
        raise AssertionError("scipy was found")
    inside.set()
    assert done.wait(60)
thread.join()
assert seen
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_the_thread_that_asked_finds_packages_missing() -> None:
    run(PROGRAM)


@pytest.mark.slow
def test_tokens_and_stems_need_neither_scipy_nor_scikit_learn() -> None:
    loaded = run(
        "import sys\n"
        "from assay.helm.scoring.scorer import AnswerTexts, Scorer\n"
        "scorer = Scorer(['rouge_l', 'bleu_1'], 1)\n"
        "assert scorer.score(AnswerTexts(('The dogs are running.',), ('Dogs ran.',)))[1] > 0\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
        "import sklearn.linear_model, scipy.stats  # found again\n"
    ).split()
    assert "nltk" in loaded
    assert not {"scipy", "sklearn", "pandas", "matplotlib"} & set(loaded)
