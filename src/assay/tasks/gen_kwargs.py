"""Generation settings as text, read as lm-eval reads ``--gen_kwargs``."""

from __future__ import annotations

from typing import Any

from assay.errors import SpecificationError


def parse_gen_kwargs(text: str) -> dict[str, Any]:
    """Read ``key=value,key=value``; numbers and booleans become such.

    Raises:
        SpecificationError: a part has no ``=``.
    """
    for part in filter(None, (part.strip() for part in text.split(","))):
        if "=" not in part:
            raise SpecificationError(f"gen_kwargs has the part '{part}' without '='; write key=value,key=value")
    from lm_eval.utils import simple_parse_args_string

    settings: dict[str, Any] = simple_parse_args_string(text)
    return settings
