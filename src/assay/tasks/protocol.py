"""What Assay uses of lm-eval's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.types import RequestKind


class Task(Protocol):
    """A benchmark as lm-eval loads it: ``lm_eval.api.task.Task``, from YAML or a class of the user's own.

    Documents are whatever the data set's rows are, as a rule dictionaries. What only some tasks have (``sampler``,
    ``_filters``, ``UNSAFE_CODE``, …) is asked for by ``getattr`` where it is needed.
    """

    OUTPUT_TYPE: RequestKind | str | None
    """``generate_until``, ``loglikelihood``, ``loglikelihood_rolling`` or ``multiple_choice``."""
    VERSION: Any

    @property
    def task_name(self) -> str:
        """The name under which it was loaded."""

    @property
    def config(self) -> Any:
        """lm-eval's ``TaskConfig``: the fields of the task's YAML."""

    @property
    def eval_docs(self) -> Sequence[Any]:
        """The documents to ask: of the test split, or else of the validation split."""

    def get_config(self, key: str) -> Any:
        """A field of the configuration; None where there is none."""

    def set_config(self, key: str, value: Any, update: bool = False) -> None:
        """Set a field of the configuration, or add to it."""

    def dump_config(self) -> dict[str, Any]:
        """The configuration as lm-eval's results file holds it."""

    def override_metric(self, metric_name: str) -> None:
        """Score by one metric in place of the task's own."""

    def set_fewshot_seed(self, seed: int | None = None) -> None:
        """Seed the choice of examples."""

    def fewshot_context(
        self,
        doc: Any,
        num_fewshot: int,
        system_instruction: str | None = None,
        apply_chat_template: bool = False,
        fewshot_as_multiturn: bool = False,
        chat_template: Callable[..., Any] | None = None,
        gen_prefix: str | None = None,
    ) -> Any:
        """A document's prompt, with examples before it: text, or a conversation."""

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> Any:
        """lm-eval's ``Instance`` of a document, or a list of them."""

    def doc_to_text(self, doc: Any) -> Any:
        """A document's question."""

    def doc_to_prefix(self, doc: Any) -> str | None:
        """The text with which the model's answer is to begin; None where the model chooses."""

    def doc_to_target(self, doc: Any) -> Any:
        """A document's right answer."""

    def process_results(self, doc: Any, results: Any) -> dict[str, Any]:
        """By metric, the scores of a document, given its filtered answers."""

    def aggregation(self) -> Mapping[str, Callable[..., Any]]:
        """By metric, what makes one score of the documents' scores."""

    def higher_is_better(self) -> Mapping[str, bool]:
        """By metric, whether more is better."""
