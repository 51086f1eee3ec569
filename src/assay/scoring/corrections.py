"""Known faults of lm-eval that affect a run: lm-eval's value stays under its key, the right value stands beside it.

A fault is recognised by what a task does, not by its name, so that it is found in users' own tasks too.
"""

from __future__ import annotations

import random
import string
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from assay.types import MetricKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.scoring.task_scores import TaskScores
    from assay.tasks.protocol import Task
    from assay.types import ModelSpec

_LETTER_FREQUENCY = "keywords:letter_frequency"
"""IFEval's instruction to use a letter so many times."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """Something that lm-eval gets wrong about a task of this run."""

    task: str
    note: str
    """What is wrong, and what this run does about it."""
    values: dict[str, float] = {}
    """By metric key, the right value. Empty if lm-eval's values are right here, or the right ones are not known."""


def corrections(scores: Mapping[str, TaskScores], model: ModelSpec) -> tuple[Correction, ...]:
    """What lm-eval gets wrong about a run's tasks.

    Args:
        scores: by task, its samples' scores.
        model: the model that was asked.
    """
    found = []
    for task_scores in scores.values():
        found += [
            _documents_drawn_anew(task_scores),
            _one_seed_for_all_repeats(task_scores, model),
            _symbols_taken_for_letters(task_scores),
        ]
    return tuple(correction for correction in found if correction is not None)


def _documents_drawn_anew(scores: TaskScores) -> Correction | None:
    config = scores.task.config
    fewshot = getattr(config, "fewshot_config", None)
    functions = [getattr(config, "process_docs", None), getattr(fewshot, "process_docs", None)]
    if not any(getattr(getattr(function, "func", function), "drew_random_numbers", False) for function in functions):
        return None
    return Correction(
        task=scores.name,
        note="its documents are prepared with random numbers, which lm-eval may do once for the prompts and again for "
        "the scores, so that it scores another order of choices than it asked; here both see the same documents",
    )


def _one_seed_for_all_repeats(scores: TaskScores, model: ModelSpec) -> Correction | None:
    repeats = scores.task.get_config("repeats") or 1
    settings = scores.task.get_config("generation_kwargs") or {}
    if repeats == 1 or not settings.get("temperature") or scores.task.OUTPUT_TYPE != "generate_until":
        return None
    if model.distinct_repeat_seeds:
        note = f"each of the {repeats} repeats was sent with a seed of its own; lm-eval sends one with all"
    else:
        note = (
            f"all {repeats} repeats are sent with one seed, as lm-eval does it, so that a server that honours seeds "
            "answers them alike; --distinct-repeat-seeds gives each its own"
        )
    return Correction(task=scores.name, note=note)


# -- IFEval -----------------------------------------------------------------------------------------------------------


def _symbols_taken_for_letters(scores: TaskScores) -> Correction | None:
    checker = _letter_checker(scores.task)
    if checker is None:
        return None
    docs = scores.task.eval_docs
    asked = {doc_id: symbol for doc_id in scores.scored_documents if (symbol := _symbol_asked(docs[doc_id]))}
    if not asked:
        return None
    right = {doc_id: _metrics_with(checker, symbol, scores, doc_id) for doc_id, symbol in asked.items()}
    values = {}
    aggregation = scores.task.aggregation()
    for (metric, filter_name), _ in scores.raw_metrics().items():
        by_document = scores.values_by_document(metric, filter_name)
        by_document |= {doc_id: metrics[filter_name][metric] for doc_id, metrics in right.items()}
        values[str(MetricKey(metric, filter_name))] = float(aggregation[metric](list(by_document.values())))
    keys = ", ".join(str(docs[doc_id].get("key", doc_id)) for doc_id in asked)
    symbols = " or ".join(sorted(set(asked.values())))
    return Correction(
        task=scores.name,
        note=f"key {keys}: lm-eval counts a letter drawn at random in place of {symbols} (here the draw is the same in "
        "every run); counting what was asked for gives",
        values=values,
    )


def _letter_checker(task: Task) -> Any:
    """IFEval's class that counts letters; None if the task is not scored with it."""
    names = getattr(task.get_config("process_results"), "__globals__", {})
    registry = getattr(names.get("instructions_registry"), "INSTRUCTION_DICT", {})
    return registry.get(_LETTER_FREQUENCY)


def _symbol_asked(doc: Mapping[str, Any]) -> str | None:
    """The symbol that a document asks to count; None if it is a letter from a to z, or there is none."""
    for name, settings in zip(doc["instruction_id_list"], doc["kwargs"], strict=False):
        letter = (settings or {}).get("letter") if name == _LETTER_FREQUENCY else None
        if letter and len(letter) == 1 and letter not in string.ascii_letters:
            return str(letter)
    return None


def _metrics_with(checker: Any, symbol: str, scores: TaskScores, doc_id: int) -> dict[str, dict[str, Any]]:
    """One document's metrics, by filter, when `symbol` is counted."""
    doc = scores.task.eval_docs[doc_id]
    with _always_drawing(checker, symbol):
        return {name: scores.task.process_results(doc, filtered) for name, filtered in scores.filtered(doc_id).items()}


@contextmanager
def _always_drawing(checker: Any, symbol: str) -> Iterator[None]:
    """Make IFEval's module draw `symbol` wherever it draws a letter at random."""
    module: Any = sys.modules[checker.__module__]
    drawn_from = module.random

    class FixedDraw:
        def choice(self, options: Any) -> Any:
            return symbol if options == list(string.ascii_letters) else random.choice(options)

        def __getattr__(self, name: str) -> Any:
            return getattr(drawn_from, name)

    module.random = FixedDraw()
    try:
        yield
    finally:
        module.random = drawn_from
