"""Where an endpoint's API key comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from assay.types import ModelSpec

_LONGEST = 65536


def read_api_key(spec: ModelSpec) -> str | None:
    """The key of `spec`: from its file if it names one, else from its environment variable; None if there is none.

    Raises:
        SpecificationError: the file cannot be read, is empty, or holds no key that could be sent.
    """
    if spec.api_key_file is None:
        return os.environ.get(spec.api_key_env)
    try:
        with Path(spec.api_key_file).expanduser().open("rb") as file:
            content = file.read(_LONGEST).strip()
    except OSError as error:
        reason = error.strerror or error
        raise SpecificationError(f"cannot read the API key file {spec.api_key_file}: {reason}") from None
    if not content:
        raise SpecificationError(f"the API key file {spec.api_key_file} is empty")
    if any(byte not in range(0x20, 0x7F) for byte in content):
        raise SpecificationError(f"the API key file {spec.api_key_file} must hold the key alone, on one line")
    return content.decode("ascii")
