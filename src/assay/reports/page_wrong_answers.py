"""The wrong answers that stand at the top of an HTML report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from assay.diagnosis import Example
    from assay.reports.page_samples import SamplePacker, TaskRows

_SHOWN = 3
_LENGTH = 280
"""Characters of a text; of a longer one its end, where the question or the result is."""


class WrongAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A sample with the score 0; its texts are a model's and a file's."""

    task: str
    doc_id: int
    question: str
    answer: str
    extracted: str
    target: str


class WrongAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """Some of a run's wrong answers."""

    count: int
    """How many there are in the run."""
    shown: tuple[WrongAnswer, ...]


def wrong_answers(packer: SamplePacker, examples: Iterable[Example], left_out: Collection[str] = ()) -> WrongAnswers:
    """Choose three wrong answers: first those that show a cause, then lost ones, then from all over the run.

    Args:
        packer: has taken all samples.
        examples: samples that show the likeliest cause.
        left_out: tasks of which 0 is not the worst score.
    """
    rows = packer.rows()
    tasks = [task for task in packer.tasks for _ in range(task.count)]
    judged = [(number, task) for number, task in enumerate(tasks) if task.name not in left_out]
    wrong = [number for number, task in judged if _score(rows[number], task) == 0]
    numbers = {(tasks[number].name, rows[number][0]): number for number in wrong}
    telling = [numbers[place] for one in examples if (place := (one.task, one.doc_id)) in numbers]
    lost = [number for number in wrong if _is_lost(rows[number], tasks[number])]
    chosen = [*dict.fromkeys([*telling, *_spread(lost), *_spread(wrong)])][:_SHOWN]
    shown = (_wrong_answer(packer, number, rows[number], tasks[number]) for number in chosen)
    return WrongAnswers(count=len(wrong), shown=tuple(shown))


def _score(row: Sequence[Any], task: TaskRows) -> float | None:
    scores = row[3]
    return scores[task.chosen] if task.chosen < len(scores) else None


def _is_lost(row: Sequence[Any], task: TaskRows) -> bool:
    return len(row) > 4 and bool(task.keys) and row[4].get(task.keys[task.chosen]) == "lost"


def _spread(numbers: Sequence[int]) -> Iterator[int]:
    """Three from the whole range."""
    for place in range(min(_SHOWN, len(numbers))):
        yield numbers[place * len(numbers) // min(_SHOWN, len(numbers))]


def _wrong_answer(packer: SamplePacker, number: int, row: Sequence[Any], task: TaskRows) -> WrongAnswer:
    entry, references = packer.texts(number)
    doc_id, target, filters = row[:3]
    wanted = task.keys[task.chosen].partition(",")[2]
    found = filters[task.filters.index(wanted)] if wanted in task.filters else None
    extracted = "" if found is None else str(found[0])
    said = next((_end(answer["text"]) for answer in entry["a"] if answer.get("text")), "")
    return WrongAnswer(
        task=task.name,
        doc_id=doc_id,
        question=_question(entry, references),
        answer=said,
        extracted=extracted,
        target=target,
    )


def _question(entry: dict[str, Any], references: Sequence[Sequence[str]]) -> str:
    """The end of the prompt's last turn."""
    if not entry["p"]:
        return ""
    equal, *others = entry["p"][0][0]
    if not others:
        return _end(references[equal - 1][1]) if equal else ""
    _, shared, rest = others[-1]
    place = equal + len(others) - 1
    common = _utf16_start(references[place][1], shared) if shared and place < len(references) else ""
    return _end(common + rest if isinstance(rest, str) else rest)


def _utf16_start(text: str, units: int) -> str:
    """The beginning of a text whose length is counted as JavaScript does."""
    if text.isascii():
        return text[:units]
    return text.encode("utf-16-le", "surrogatepass")[: 2 * units].decode("utf-16-le", "surrogatepass")


def _end(text: str | Sequence[Any]) -> str:
    """The end of a text, which may be cut (:func:`assay.reports.page_texts.cut`)."""
    whole, is_cut = (text, False) if isinstance(text, str) else (text[2], True)
    whole = whole.strip()
    return f"…{whole[-_LENGTH:]}" if is_cut or len(whole) > _LENGTH else whole
