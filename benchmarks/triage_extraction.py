"""How well triage finds right answers that a filter has missed: on answers of real models whose correctness is known.

    python -m benchmarks.triage_extraction MODEL_OUTPUTS

MODEL_OUTPUTS is a folder with ``gsm8k/openai_example_model_solutions.jsonl`` (openai/grade-school-math: 1,319
questions, four models, each answer with the verdict that was published with it) and ``bbh/code-davinci-002.jsonl``
(suzgunmirac/BIG-Bench-Hard: 25 answers a task and mode; right by the authors' rule if what follows "answer is", without
its full stop, is the target).

lm-eval's own filters extract. Of the answers that they score as wrong, triage says which are right. GSM8K's answers end
in ``A: 18``; to see other forms, too, that line is rewritten, with whatever number the model gave, right or wrong, or
left out, so that only the worked steps remain.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from assay.diagnosis.extraction import gold_of, missed_answer

GSM8K_STRICT = r"#### (\-?[0-9\.\,]+)"
GSM8K_FLEXIBLE = r"(-?[$0-9.,]{2,})|(-?[0-9]+)"
BBH = r"(?<=the answer is )(.*)(?=.)"
NEXT = (
    "\n\nQuestion: A box holds 4 rows of 6 eggs. How many eggs are in 3 boxes?\nA: 4 * 6 = 24, so 24 * 3 = 72.\nA: 72"
)
FORMS: dict[str, Callable[[str], str]] = {
    "A: 18": lambda said: f"A: {said}",
    "\\boxed{18}": lambda said: f"So the final result is $\\boxed{{{said}}}$",
    "**18**": lambda said: f"That gives **{said}** in all.",
    "Answer: $18.00": lambda said: f"**Answer:** ${said}.00" if said.isdigit() else f"**Answer:** ${said}",
    "the final answer is 18 eggs": lambda said: f"Therefore, the final answer is {said} eggs, as asked.",
    "steps alone": lambda _: "",
    "A: 18, then a question of its own": lambda said: f"A: {said}{NEXT}",
}


class Answer(NamedTuple):
    """One answer of a real model."""

    text: str
    target: str
    is_right: bool


class Agreement(NamedTuple):
    """Of the answers that a filter scores as wrong: what triage says, and what is so."""

    answers: int
    """All of them, those that the filter scores as right included."""
    missed: int
    """Right ones that the filter scores as wrong."""
    found: int
    """Of these, those that triage calls right."""
    wrongly_found: int
    """Wrong ones that triage calls right."""

    @property
    def precision(self) -> float:
        """Of what triage calls right, how much is; 1 where it calls nothing right."""
        called = self.found + self.wrongly_found
        return self.found / called if called else 1.0

    @property
    def recall(self) -> float:
        """Of the right answers that the filter missed, how many triage finds; 1 where there are none."""
        return self.found / self.missed if self.missed else 1.0


def measure(model_outputs: Path) -> dict[str, Agreement]:
    """Triage against published correctness, by data, form and filter."""
    found = {
        f"GSM8K, {form}; {name}": agreement(list(gsm8k(model_outputs, write)), pattern, select)
        for form, write in FORMS.items()
        for name, pattern, select in (("strict-match", GSM8K_STRICT, 0), ("flexible-extract", GSM8K_FLEXIBLE, -1))
    }
    for mode in ("cot", "direct"):
        found[f"BBH, {mode}; get-answer"] = agreement(list(bbh(model_outputs, mode)), BBH, 0)
    return found


def agreement(answers: list[Answer], pattern: str, select: int) -> Agreement:
    """Extract with lm-eval's regex filter, and ask triage about what that makes wrong."""
    from lm_eval.filters.extraction import RegexFilter

    extracted = RegexFilter(pattern, select).apply([[answer.text] for answer in answers], [{} for _ in answers])
    missed = found = wrongly_found = 0
    for answer, (said,) in zip(answers, extracted, strict=True):
        gold = gold_of(answer.target)
        if _normalised(said) == _normalised(answer.target) or gold is None:
            missed += gold is None and answer.is_right and _normalised(said) != _normalised(answer.target)
            continue
        is_called_right = missed_answer(answer.text, gold) is not None
        missed += answer.is_right
        found += answer.is_right and is_called_right
        wrongly_found += is_called_right and not answer.is_right
    return Agreement(len(answers), missed, found, wrongly_found)


def gsm8k(model_outputs: Path, write: Callable[[str], str]) -> Iterator[Answer]:
    """Answers to GSM8K, with their last line written in another form."""
    for line in (model_outputs / "gsm8k" / "openai_example_model_solutions.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        target = record["ground_truth"].rpartition("A: ")[2]
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            steps, mark, said = record[model]["solution"].rpartition("A: ")
            text = steps + write(said.strip()) if mark else said
            yield Answer(text, target, bool(record[model]["is_correct"]))


def bbh(model_outputs: Path, mode: str) -> Iterator[Answer]:
    """Answers to BIG-Bench Hard."""
    for line in (model_outputs / "bbh" / "code-davinci-002.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        if record["mode"] == mode:
            text, target = record["prediction"].strip(), record["target"].strip()
            yield Answer(text, target, text.rpartition("answer is ")[2].removesuffix(".").strip() == target)


def _normalised(text: str) -> str:
    return text.replace(",", "").replace("$", "").removesuffix(".").strip().lower()


def main() -> None:
    """Print the table of docs/triage.md."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model_outputs", type=Path)
    print("| answers | scored | right but missed | found | wrongly found | precision | recall |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, row in measure(parser.parse_args().model_outputs).items():
        print(
            f"| {name} | {row.answers} | {row.missed} | {row.found} | {row.wrongly_found} "
            f"| {row.precision:.4f} | {row.recall:.4f} |"
        )


if __name__ == "__main__":
    main()
