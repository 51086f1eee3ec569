"""Runs a program under the conditions of OpenAI's HumanEval harness: the functions it disables, and its output streams.

The harness (arXiv 2107.03374) executes a completion and its tests in one namespace. The completion passes if it reaches
the last line in time without an exception. The harness first disables a number of functions, so that a program that
calls one fails. The ``code_eval`` metric on the Hugging Face hub and lm-eval's cruxeval do the same.
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
"""Cannot be imported once the harness has disabled those functions. lm-eval's process has imported them before."""

_WORDS = {Ending.FINISHED: "passed", Ending.TIMED_OUT: "timed out", Ending.DIED: "timed out"}


def checked_program(source: str, seconds: float) -> Program:
    """A program that executes `source`, a completion with its tests, as the harness does."""
    return Program(source, seconds, _SETUP, tuple(name for name in _LOADED_BY_LM_EVAL if name in source))


def passed(result: RunResult) -> bool:
    """Whether the completion passes."""
    return result.ending is Ending.FINISHED


def verdict_words(result: RunResult) -> str:
    """The harness's words for a result. If the program's process died, they are "timed out"."""
    return _WORDS.get(result.ending) or f"failed: {result.message}"
