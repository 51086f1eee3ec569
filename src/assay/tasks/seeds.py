"""lm-eval's ``--seed``: the seeds of all random streams in one text."""

from __future__ import annotations

from assay.errors import SpecificationError
from assay.types import TaskOptions

_STREAMS = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")


def parse_seeds(text: str) -> dict[str, int]:
    """Read one seed for all streams, or one each for Python, NumPy, PyTorch and the few-shot examples.

    The last of the four may be left out, and has its default then.

    Returns:
        Values of :class:`~assay.types.TaskOptions`, by name.

    Raises:
        SpecificationError: the text is something else. lm-eval's ``None``, a stream without a seed, is refused: a run
            that is never the same twice cannot be resumed or compared.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(parts) not in (1, 3, 4):
        raise SpecificationError(
            f"the seed '{text}' cannot be read: write one whole number, or four for Python, NumPy, PyTorch and the "
            "few-shot examples, as in 0,1234,1234,1234"
        )
    seeds = [int(part) for part in parts] * (4 if len(parts) == 1 else 1)
    return dict(zip(_STREAMS, [*seeds, TaskOptions().fewshot_seed][:4], strict=True))
