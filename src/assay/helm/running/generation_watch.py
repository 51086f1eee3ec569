"""Records log-probabilities and finds stop sequences while ``transformers`` generates a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
        self._decode = decode
        self._start = start
        self._stops = stops
        # A token has at least one byte, so a stop sequence that has just ended lies within this many tokens.
        self._tail = max((len(stop.encode()) for stop in stops), default=0) + 1
        self._distribution: Any = None
        self._logprobs: list[Any] = []
        self.ends: list[int | None] = []
        """For each row, the number of tokens up to the end of a stop sequence, or None without one."""

    def on_logits(self, input_ids: Any, logits: Any) -> Any:
        """Called before a token is chosen, with the logits of shape (rows, vocabulary)."""
        self.ends = self.ends or [None] * len(input_ids)
        self._distribution = self._torch.log_softmax(logits.float(), dim=-1)
        return logits

    def on_tokens(self, input_ids: Any, scores: Any) -> Any:  # noqa: ARG002 - called by transformers
        """Called after a token was chosen; returns which rows are done."""
        self._logprobs.append(self._distribution.gather(1, input_ids[:, -1:]).squeeze(1))
        count = input_ids.shape[1] - self._start
        for row in [row for row, end in enumerate(self.ends) if end is None and self._stops]:
            tail = self._decode(input_ids[row, self._start :][-self._tail :].tolist())
            if any(stop in tail for stop in self._stops):
                self.ends[row] = count
        return self._torch.tensor([end is not None for end in self.ends], device=input_ids.device)

    def logprobs_by_row(self) -> list[list[float]]:
        """Each row's log-probabilities, one for each token up to the batch's last."""
        values: list[list[float]] = self._torch.stack(self._logprobs, dim=1).tolist()
        return [row[:end] for row, end in zip(values, self.ends, strict=True)]
