"""Generation settings as text, read as lm-eval reads its ``--gen_kwargs``."""

from __future__ import annotations

from typing import Any

from assay.errors import SpecificationError


def parse_gen_kwargs(text: str) -> dict[str, Any]:
    """Read ``key=value,key=value`` or a JSON object; values that look like numbers, booleans or lists become such.

    Raises:
        SpecificationError: the text is neither.
    """
    from lm_eval._cli.utils import key_val_to_dict, try_parse_json

    try:
        parsed = try_parse_json(text) if text.strip() else {}
        settings: dict[str, Any] = parsed if isinstance(parsed, dict) else key_val_to_dict(str(parsed))
    except ValueError as error:
        raise SpecificationError(f"gen_kwargs '{text}' cannot be read: {error}") from error
    return settings
