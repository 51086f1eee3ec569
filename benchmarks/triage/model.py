"""The healthy model of the matrix: its answers differ in length, language and accuracy, and are well-formed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.triage.documents import MatrixTask
from benchmarks.triage.replies import Reply

_STEPS = {
    "en": (
        "First I look at what is given",
        "Then I put the parts in order one after another",
        "Next I check each part against the text",
        "This leaves one possibility that fits everything",
        "That agrees with what was asked",
    ),
    "de": (
        "Zuerst sehe ich mir an was gegeben ist",
        "Dann ordne ich die Teile der Reihe nach",
        "Danach vergleiche ich jeden Teil mit dem Text",
        "So bleibt nur eine Möglichkeit",
    ),
    "fr": (
        "D'abord je regarde ce qui est donné",
        "Puis je mets les parties dans le bon ordre",
        "Ensuite je compare chaque partie avec le texte",
        "Il ne reste alors que cette possibilité",
    ),
    "es": (
        "Primero miro lo que se da en el texto",
        "Luego pongo las partes en orden",
        "Después comparo cada parte con la pregunta",
        "Así queda una sola posibilidad",
    ),
    "zh": ("首先看题目给出的条件", "然后把各部分按顺序排好", "接着逐一检查每个部分", "这样只剩下一种可能"),
}


@dataclass(frozen=True)
class HealthyModel:
    """One seed is one set of weights."""

    seed: int = 0
    accuracy: float = 0.7
    style: str = "verbose"
    """``verbose``, ``terse`` or ``reasoning`` (thinks in ``reasoning_content``)."""
    language: str = "en"
    noise: float = 0.0
    """Share of the answers that are drawn anew, as from one run to the next."""
    run: int = 0

    def is_right(self, task: str, number: int) -> bool:
        """Whether it knows the answer."""
        again = random.Random(f"again {self.seed} {self.run} {task} {number}")
        if again.random() < self.noise:
            return again.random() < self.accuracy
        return random.Random(f"{self.seed} {task} {number}").random() < self.accuracy

    def said(self, matrix_task: MatrixTask, task: str, number: int) -> str:
        """The bare answer: a number, a letter, a few words, code."""
        known = matrix_task.right if self.is_right(task, number) else matrix_task.wrong
        return known[task, number]

    def steps(self, task: str, number: int) -> str:
        """The explanation before the conclusion."""
        draw = random.Random(f"steps {self.seed} {task} {number}")
        steps = _STEPS[self.language]
        count = 1 if self.style == "terse" else draw.randint(2, len(steps))
        return ". ".join(f"{step} ({draw.randint(2, 99)})" for step in draw.sample(steps, count)) + "."

    def reply(self, matrix_task: MatrixTask, task: str, number: int) -> Reply:
        """The healthy answer."""
        said, kind = self.said(matrix_task, task, number), matrix_task.kind
        steps, conclusion = self.steps(task, number), kind.conclusion.format(said) or said
        text = f"{steps} {conclusion}" if kind.explains else conclusion
        thought = f"{steps} So the answer is {said}." if kind.explains else f"{steps} Answer: {said}"
        return Reply(text=text, reasoning=thought if self.style == "reasoning" else None)
