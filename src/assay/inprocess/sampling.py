"""What happens beside the model while transformers generates: rows that end at a stop string, and sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from assay.inprocess.loading import library

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class StopWatch:
    """Ends a row with its first stop string.

    Args:
        torch: the module.
        decode: turns token ids into text.
        start: the position of the first generated token.
        stops: the stop strings.
    """

    def __init__(self, torch: Any, decode: Callable[[Sequence[int]], str], start: int, stops: Sequence[str]) -> None:
        self._torch = torch
        self._decode = decode
        self._start = start
        self._stops = stops
        # A token has at least one byte, so a stop string that has just ended lies within this many tokens.
        self._tail = max((len(stop.encode()) for stop in self._stops), default=0) + 1
        self._ends: dict[int, int] = {}

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:  # noqa: ARG002 - called by transformers
        """Say which rows are done."""
        count = input_ids.shape[1] - self._start
        if self._stops:
            tails = input_ids[:, self._start :][:, -self._tail :].tolist()
            for row in range(len(tails)):
                if row not in self._ends and self._has_stop(tails[row]):
                    self._ends[row] = count
        return self._torch.tensor([row in self._ends for row in range(len(input_ids))], device=input_ids.device)

    def _has_stop(self, tail: Sequence[int]) -> bool:
        text = self._decode(tail)
        return any(stop in text for stop in self._stops)

    def ends_or_none(self, rows: Sequence[object]) -> list[int | None]:
        """For each row, its number of tokens up to the end of a stop string, or None without one."""
        return [self._ends.get(row) for row in range(len(rows))]


class RowChoices:
    """Draws each row's next token from a stream of random numbers of its own, and leaves only that one to choose.

    A token's logit plus a standard Gumbel variable is largest with the token's probability (Gumbel-max), so that the
    greedy choice afterwards samples. What a row draws does not depend on the rows beside it.
    """

    SETTINGS: ClassVar[tuple[str, ...]] = ("top_k", "top_p", "min_p", "typical_p")
    """The settings that it takes, by transformers' names."""

    def __init__(self, torch: Any, warpers: Sequence[Any], seeds: Sequence[int]) -> None:
        self._torch = torch
        self._warpers = warpers
        self._streams = [torch.Generator().manual_seed(seed % 2**63) for seed in seeds]

    @classmethod
    def from_settings(
        cls, torch: Any, *, temperature: float, seeds: Sequence[int], settings: Mapping[str, Any]
    ) -> RowChoices:
        """Make one for a batch.

        Args:
            torch: the module.
            temperature: greater than 0.
            seeds: one for each row.
            settings: some of :attr:`SETTINGS`, and others that are ignored.
        """
        known = library("transformers.generation.logits_process")

        warpers = [known.TemperatureLogitsWarper(float(temperature))]
        if top_k := settings.get("top_k"):
            warpers.append(known.TopKLogitsWarper(int(top_k)))
        if (top_p := settings.get("top_p")) is not None and top_p < 1:
            warpers.append(known.TopPLogitsWarper(float(top_p)))
        if (min_p := settings.get("min_p")) is not None:
            warpers.append(known.MinPLogitsWarper(float(min_p)))
        if (typical_p := settings.get("typical_p")) is not None and typical_p < 1:
            warpers.append(known.TypicalLogitsWarper(float(typical_p)))
        return cls(torch, warpers, seeds)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Called before a token is chosen, with the logits of shape (rows, vocabulary)."""
        for warper in self._warpers:
            scores = warper(input_ids, scores)
        uniform = self._torch.stack(
            [self._torch.rand(scores.shape[1], generator=stream, dtype=self._torch.float64) for stream in self._streams]
        )
        noise = -(-uniform.clamp(min=1e-300).log()).log()
        return scores + noise.to(device=scores.device, dtype=scores.dtype)
