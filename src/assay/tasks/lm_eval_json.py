"""Results, configurations and documents as the JSON that lm-eval makes of them."""

from __future__ import annotations

import json
from typing import Any


def lm_eval_json(value: Any, *, indent: int | None = None) -> str:
    """The JSON text, with NumPy's numbers as numbers, and whatever JSON does not know as lm-eval writes it."""
    from lm_eval.utils import handle_non_serializable

    return json.dumps(value, indent=indent, default=handle_non_serializable, ensure_ascii=False)


def as_written(value: Any) -> Any:
    """What reading the JSON back gives: no scalars of NumPy's, no functions."""
    return json.loads(lm_eval_json(value))
