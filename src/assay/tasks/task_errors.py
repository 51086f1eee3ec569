"""Describes what a task's own code raised, for the person who runs the task."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_LONGEST = 600
_LONGEST_KEY = 40
_STANDARD_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
_TASKS_OF_LM_EVAL = "/lm_eval/tasks/"
_ASSAY = str(Path(__file__).parents[1])


def describe_error(error: BaseException) -> str:
    """One line: what the error says, its kind, and where in the task's own code it arose, if it did there.

    Args:
        error: whatever foreign code may raise, also one that cannot be shown.
    """
    said = _message_of(error)
    if type(error).__module__.startswith("assay."):
        return said
    kind = type(error).__name__ + _place_of(error)
    return f"{said} ({kind})" if said else kind


def _message_of(error: BaseException) -> str:
    try:
        text = str(error)
        if isinstance(error, KeyError) and len(error.args) == 1:
            # Its text is its argument's `repr`, line breaks and all; some put a sentence there.
            key = error.args[0]
            is_sentence = isinstance(key, str) and (len(key) > _LONGEST_KEY or "\n" in key)
            text = key if is_sentence else f"there is no {key!r}"
    except Exception:
        return "an error that cannot be shown"
    return " ".join(text.split())[:_LONGEST].encode("utf-8", "backslashreplace").decode()


def _place_of(error: BaseException) -> str:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == "<template>":
            return ", in its template"
        if _is_of_task(frame.filename):
            return f", {Path(frame.filename).name} line {frame.lineno}"
    return ""


def _is_of_task(file: str) -> bool:
    if _TASKS_OF_LM_EVAL in file:
        return not Path(file).name.startswith("_")  # its loader lies there, too
    return "-packages/" not in file and not file.startswith((*_STANDARD_LIBRARY, _ASSAY, "<"))
