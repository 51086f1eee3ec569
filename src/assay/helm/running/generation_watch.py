"""Records log-probabilities and finds stop sequences while ``transformers`` generates a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.inprocess.sampling import StopWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class GenerationWatch:
    """Records each token's log-probability, and stops a row at its first stop sequence.

    Args:
        torch: the module.
        decode: turns token ids into text.
        start: the position of the first generated token.
        stops: the stop sequences.
    """

    def __init__(self, torch: Any, decode: Callable[[Sequence[int]], str], start: int, stops: Sequence[str]) -> None:
        self._torch = torch
        self._stop_watch = StopWatch(torch, decode, start, stops)
        self._rows: range = range(0)
        self._distribution: Any = None
        self._logprobs: list[Any] = []

    def on_logits(self, input_ids: Any, logits: Any) -> Any:
        """Called before a token is chosen, with the logits of shape (rows, vocabulary)."""
        self._rows = range(len(input_ids))
        self._distribution = self._torch.log_softmax(logits.float(), dim=-1)
        return logits

    def on_tokens(self, input_ids: Any, scores: Any) -> Any:
        """Called after a token was chosen; returns which rows are done."""
        self._logprobs.append(self._distribution.gather(1, input_ids[:, -1:]).squeeze(1))
        return self._stop_watch(input_ids, scores)

    @property
    def ends(self) -> list[int | None]:
        """For each row, the number of tokens up to the end of a stop sequence, or None without one."""
        return self._stop_watch.ends_or_none(self._rows)

    def logprobs_by_row(self) -> list[list[float]]:
        """Each row's log-probabilities, one for each token up to the batch's last."""
        values: list[list[float]] = self._torch.stack(self._logprobs, dim=1).tolist()
        return [row[:end] for row, end in zip(values, self.ends, strict=True)]
