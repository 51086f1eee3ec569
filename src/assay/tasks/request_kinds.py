"""Which kinds of requests a task makes, as far as that can be known before its first prompt.

lm-eval's own tasks say it by their output type. A task with Python of its own may mix kinds in one document, as
SQuAD 2.0 does: an answer, and how likely it is that there is none.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from assay.tasks.documents import documents

if TYPE_CHECKING:
    from assay.tasks.protocol import Task
    from assay.types import RequestKind

_KINDS: dict[str, RequestKind] = {
    "generate_until": "generate_until",
    "loglikelihood": "loglikelihood",
    "loglikelihood_rolling": "loglikelihood_rolling",
    "multiple_choice": "loglikelihood",
}
"""By lm-eval's output types."""


def request_kinds(task: Task) -> frozenset[RequestKind]:
    """The kinds of one of lm-eval's tasks: those of its first document, where its own Python makes the requests."""
    kinds = {_KINDS[task.OUTPUT_TYPE]} if task.OUTPUT_TYPE in _KINDS else set()
    if _makes_its_own_requests(task):
        kinds |= _kinds_of_first_document(task)
    return frozenset(kinds)


def _makes_its_own_requests(task: Task) -> bool:
    from lm_eval.api.task import ConfigurableTask

    construct = getattr(task, "construct_requests", None)
    return construct is not None and getattr(construct, "__func__", None) is not ConfigurableTask.construct_requests


def _kinds_of_first_document(task: Task) -> set[RequestKind]:
    state = random.getstate()
    try:
        doc = next(iter(documents(task.eval_docs)))
        built = task.construct_requests(
            doc=doc, ctx="", metadata=("", 0, 1), apply_chat_template=False, chat_template=None
        )
        return {instance.request_type for instance in (built if isinstance(built, list) else [built])}
    except Exception:  # foreign code may reject an empty prompt; the real one will tell
        return set()
    finally:
        random.setstate(state)
