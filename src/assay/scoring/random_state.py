"""Scorers that draw random numbers draw the same for a document in every run."""

from __future__ import annotations

import random
import sys
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from assay.types import Sample


def random_state_of(sample: Sample) -> AbstractContextManager[None]:
    """Seed the random numbers of scorers from the sample, and restore the stream that prompts draw from."""
    return random_state_at(sample.task, sample.doc_id)


@contextmanager
def random_state_at(task: str, doc_id: int) -> Iterator[None]:
    """:func:`random_state_of` by task and document."""
    state, numpy_state = random.getstate(), np.random.get_state()
    place = f"{task}/{doc_id}"
    random.seed(place)
    np.random.seed(zlib.crc32(place.encode()))
    if (langdetect := sys.modules.get("langdetect")) is not None:
        langdetect.DetectorFactory.seed = 0
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
