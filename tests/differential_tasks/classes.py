"""Tasks that are Python classes, as lm-eval's own SQuAD 2.0 is: one mixes kinds of requests in a document."""

from __future__ import annotations

import math
from typing import Any

import datasets
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask, Task


class Mixing(Task):  # type: ignore[misc]
    """An answer, and how likely "many" is; each twice under one number, as lm-eval's own such tasks have it."""

    VERSION = 2
    DATASET_PATH = ""

    def download(self, *_: Any, **__: Any) -> None:
        rows = [{"question": f"What is {n} + {n * 7}?", "answer": str(n * 8)} for n in range(12)]
        self.dataset = {
            "train": datasets.Dataset.from_list(rows[6:]),
            "validation": datasets.Dataset.from_list(rows[:6]),
        }

    def has_training_docs(self) -> bool:
        return True

    def has_validation_docs(self) -> bool:
        return True

    def has_test_docs(self) -> bool:
        return False

    def training_docs(self) -> Any:
        return self.dataset["train"]

    def validation_docs(self) -> Any:
        return self.dataset["validation"]

    def doc_to_text(self, doc: Any) -> str:
        return f"Question: {doc['question']}\nAnswer:"

    def doc_to_target(self, doc: Any) -> str:
        return f" {doc['answer']}"

    def construct_requests(self, doc: Any, ctx: str, **options: Any) -> list[Instance]:
        for name in ("apply_chat_template", "chat_template"):
            options.pop(name, None)
        settings = {"until": ["\n"], "max_gen_toks": 9}
        return [
            Instance(request_type="generate_until", doc=doc, arguments=(ctx, settings), idx=0, **options),
            Instance(request_type="loglikelihood", doc=doc, arguments=(ctx, " many"), idx=0, **options),
        ]

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        text, (logprob, is_greedy) = results
        return {
            "exact": text.strip() == doc["answer"],
            "many": math.exp(logprob),
            "both": (text.strip() == doc["answer"]) + is_greedy,
        }

    def aggregation(self) -> dict[str, Any]:
        return {name: (lambda values: sum(values) / len(values)) for name in ("exact", "many", "both")}

    def higher_is_better(self) -> dict[str, bool]:
        return {"exact": True, "many": False, "both": True}


class Keeping(Mixing):
    """One whose documents are the same objects each time; it counts in them how often it has asked them."""

    def download(self, *_: Any, **__: Any) -> None:
        self.rows = [{"question": f"What is {n} + {n * 7}?", "answer": str(n * 8), "asked": 0} for n in range(6)]

    def has_training_docs(self) -> bool:
        return False

    def validation_docs(self) -> Any:
        return self.rows

    def doc_to_text(self, doc: Any) -> str:
        doc["asked"] += 1
        return super().doc_to_text(doc)


class Plain(Mixing):
    """One that only asks for answers, by prompts of plain text."""

    OUTPUT_TYPE = "generate_until"

    def construct_requests(self, doc: Any, ctx: str, **options: Any) -> list[Instance]:
        return super().construct_requests(doc, ctx, **options)[:1]


class Configured(ConfigurableTask):  # type: ignore[misc]
    """One that only changes how a question is put."""

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        given = {name: value for name, value in (config or {}).items() if name != "class"}
        super().__init__(config=given)

    def doc_to_text(self, doc: Any, doc_to_text: Any = None) -> str:
        return f"Please: {doc['question']}\n"
