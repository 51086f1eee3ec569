"""OpenAI's HumanEval harness, as far as a program can notice it: what it takes away, and where output goes.

The harness (arXiv 2107.03374) executes a completion and its tests in one namespace, and counts it as right if nothing
is raised before the last line within the time. It makes a number of functions unusable first, which turns a program
that calls one into a wrong one. The ``code_eval`` metric on the Hugging Face hub and lm-eval's cruxeval do the same.
"""

from __future__ import annotations

from assay.sandbox.program import Ending, Program, RunResult

_SETUP = '''
import builtins, faulthandler, io, os, shutil, subprocess, sys

class Discarding(io.StringIO):
    """Takes text and keeps little of it; cannot be read."""

    def write(self, text):
        if isinstance(text, str) and len(text) > 1 << 16 and not self.closed:
            return len(text)
        count = super().write(text)
        if self.tell() > 1 << 16:
            self.seek(0)
            self.truncate()
        return count

    def _refuse(self, *_, **__):
        raise OSError

    read = readline = readlines = _refuse

    def readable(self):
        return False

sys.stdout = sys.stderr = sys.stdin = Discarding()
faulthandler.disable()
taken = {
    builtins: "exit quit help",
    os: "kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate replace "
    "unlink fchmod fchown chmod chown chroot lchflags lchmod lchown getcwd chdir",
    shutil: "rmtree move chown",
    subprocess: "Popen",
}
for module, names in taken.items():
    for name in names.split():
        setattr(module, name, None)
for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
    sys.modules[name] = None
'''

_LOADED_BY_LM_EVAL = ("numpy", "pandas", "scipy")
"""Cannot be imported any more after what the harness takes away; in lm-eval's process they are there already."""

_WORDS = {Ending.FINISHED: "passed", Ending.TIMED_OUT: "timed out", Ending.DIED: "timed out"}


def checked_program(source: str, seconds: float) -> Program:
    """The program that executes `source`, a completion with its tests, as the harness does."""
    return Program(source, seconds, _SETUP, tuple(name for name in _LOADED_BY_LM_EVAL if name in source))


def passed(result: RunResult) -> bool:
    """Whether the harness counts a completion as right."""
    return result.ending is Ending.FINISHED


def verdict_words(result: RunResult) -> str:
    """What the harness says of a completion. Of one whose process is gone it says that its time was up."""
    return _WORDS.get(result.ending) or f"failed: {result.message}"
