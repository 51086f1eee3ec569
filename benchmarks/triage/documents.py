"""The tasks of the matrix: which documents are asked, and how a right and a wrong answer to each reads."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.tasks.index import lm_eval_tasks_folder
from assay.tasks.library import load_tasks
from assay.types import TaskOptions

_OWN = {"drop": "drop/default.yaml", "nq_open": "nq_open/nq_open.yaml"}
"""Tasks whose few-shot examples come from a split that is not among the data."""
_IFEVAL = {"punctuation:no_comma", "change_case:english_lowercase", "startend:quotation", "detectable_format:title"}
"""The instructions that the scripted model can follow."""


@dataclass(frozen=True)
class Kind:
    """How a task's answers look."""

    names: tuple[str, ...]
    conclusion: str
    """What a well-formed answer ends with; empty for answers that are code or free text."""
    explains: bool
    """Whether an explanation may precede the conclusion."""
    right: Callable[[Any, str], str]
    """The right answer, from the document and lm-eval's target."""
    held_out: bool = False
    option: Callable[[Any, str], str | None] = lambda _, __: None
    """The text of an answer that is a letter; None if it is none."""


@dataclass(frozen=True)
class MatrixTask:
    """A task with the documents that are asked."""

    name: str
    kind: Kind
    include: Path | None
    """A folder of task files; None if lm-eval's are enough."""
    samples: Mapping[str, tuple[int, ...]]
    right: Mapping[tuple[str, int], str]
    wrong: Mapping[tuple[str, int], str]
    prompt_characters: Mapping[tuple[str, int], int]
    """By document, the length of its own part of the prompt."""
    options: Mapping[tuple[str, int], Mapping[str, str]] = field(default_factory=dict)
    """By document, the text of each letter that is its right or its wrong answer."""

    @property
    def names(self) -> tuple[str, ...]:
        """lm-eval's names."""
        return tuple(self.samples)


def _target(_: Any, target: str) -> str:
    return str(target)


def _after_hashes(_: Any, target: str) -> str:
    return str(target).rpartition("#### ")[2].strip()


def _listed_option(doc: Any, letter: str) -> str | None:
    place = ord(letter) - ord("A")
    return str(doc["options"][place]) if place < len(doc["options"]) else None


def _written_option(doc: Any, letter: str) -> str | None:
    """The option that a question writes after its letter: ``(A) 12/24/1937``."""
    found = re.search(rf"^{re.escape(letter)} (.+)$", doc["input"], re.MULTILINE)
    return found[1] if found and letter.startswith("(") else None


def _labelled_option(doc: Any, label: str) -> str | None:
    choices = doc["choices"]
    return str(choices["text"][choices["label"].index(label)]) if label in choices["label"] else None


def _ifeval(doc: Any, _: str) -> str:
    asked = set(doc["instruction_id_list"])
    text = "here is what you asked for and it follows every rule that the request gives"
    text = f"<<a title>>\n{text}" if "detectable_format:title" in asked else text
    text = text if "change_case:english_lowercase" in asked else text.capitalize()
    return f'"{text}"' if "startend:quotation" in asked else text


KINDS: dict[str, Kind] = {
    "gsm8k": Kind(("gsm8k_cot_zeroshot",), "The answer is {}.", True, _after_hashes),
    "bbh": Kind(
        tuple(f"bbh_cot_fewshot_{name}" for name in ("navigate", "object_counting", "date_understanding")),
        "So the answer is {}.",
        True,
        _target,
        option=_written_option,
    ),
    "mmlu_pro": Kind(("mmlu_pro_law", "mmlu_pro_physics"), "The answer is ({}).", True, _target, option=_listed_option),
    "mgsm": Kind(
        ("mgsm_en_cot_de", "mgsm_en_cot_fr"), "The answer is {}.", True, lambda doc, _: str(doc["answer_number"])
    ),
    "nq_open": Kind(("matrix_nq_open",), "{}", False, lambda doc, _: re.split(r"[.,\n]", doc["answer"][0])[0]),
    "drop": Kind(("matrix_drop",), "{}", False, lambda doc, _: ", ".join(doc["answers"][0]), held_out=True),
    "arc_challenge_chat": Kind(("arc_challenge_chat",), "{}", False, _target, held_out=True, option=_labelled_option),
    "humaneval": Kind(("humaneval",), "", False, lambda doc, _: doc["canonical_solution"], held_out=True),
    "ifeval": Kind(("ifeval",), "", False, _ifeval, held_out=True),
}


def write_own_tasks(folder: Path) -> Path:
    """Task files that include lm-eval's, without the split that is not there."""
    for name, path in _OWN.items():
        text = f"include: {lm_eval_tasks_folder() / path}\ntask: matrix_{name}\ntraining_split: null\n"
        text += "fewshot_split: validation\nnum_fewshot: 0\n"
        (folder / f"matrix_{name}.yaml").write_text(text, "utf-8")
    return folder


def load(name: str, include: Path, documents: int) -> MatrixTask:
    """A task of the matrix with at most `documents` documents, spread evenly over its lm-eval tasks."""
    return load_kind(name, KINDS[name], include, documents)


def load_kind(name: str, kind: Kind, include: Path, documents: int) -> MatrixTask:
    """:func:`load` for a kind of task that is not in the matrix."""
    loaded = load_tasks(kind.names, TaskOptions(include_path=str(include), confirm_run_unsafe_code=True), {}).tasks
    samples: dict[str, tuple[int, ...]] = {}
    right: dict[tuple[str, int], str] = {}
    wrong: dict[tuple[str, int], str] = {}
    lengths: dict[tuple[str, int], int] = {}
    options: dict[tuple[str, int], dict[str, str]] = {}
    for task_name, task in loaded.items():
        docs: list[Any] = list(task.eval_docs)
        chosen = [number for number, doc in enumerate(docs) if name != "ifeval" or _can_follow(doc)]
        chosen = chosen[: documents // len(kind.names)]
        samples[task_name] = tuple(chosen)
        answers = {number: kind.right(docs[number], task.doc_to_target(docs[number])) for number in chosen}
        for number, answer in answers.items():
            right[task_name, number] = answer
            lengths[task_name, number] = len(str(task.doc_to_text(docs[number])))
            other = _wrong(name, answer, list(answers.values()), random.Random(f"{name} {number}"))
            wrong[task_name, number] = other
            texts = ((each, kind.option(docs[number], each)) for each in (answer, other))
            options[task_name, number] = {each: text for each, text in texts if text is not None}
    return MatrixTask(name, kind, include, samples, right, wrong, lengths, options)


def _can_follow(doc: Any) -> bool:
    return set(doc["instruction_id_list"]) <= _IFEVAL


def _wrong(name: str, answer: str, all_answers: list[str], draw: random.Random) -> str:
    """An answer of the right form that is not right."""
    if name == "humaneval":
        return "    return None\n"
    if name == "ifeval":
        return "Well, I would say this, and that, as You asked."
    if re.fullmatch(r"-?\d+", answer):
        return str(int(answer) + draw.choice((-2, -1, 1, 2, 10)))
    others = sorted(set(all_answers) - {answer})
    return draw.choice(others)
