"""A causal language model of transformers as an engine: left-padded batches, contexts that choices share read once."""

from __future__ import annotations

import inspect
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError
from assay.inprocess.engine import Generated, Scored
from assay.inprocess.loading import identity_of, library, load_model
from assay.inprocess.sampling import RowChoices, StopWatch
from assay.inprocess.tokenizer import TransformersTokenizer
from assay.types import LocalOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.inprocess.engine import Generation, GenerationPrompt, ScoredPrompt
    from assay.types import ModelSpec

_USUAL_MAX_LENGTH = 2048
"""lm-eval's, where neither model nor tokenizer tells its own."""
_LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx")
_UNLIMITED = 1_000_000
"""A tokenizer whose ``model_max_length`` is above this does not know it."""


class HuggingFaceEngine:
    """Loads a model and its tokenizer.

    Args:
        model: names it, and says how it is loaded.

    Raises:
        MissingDependencyError: PyTorch or transformers is not installed.
        SpecificationError: it cannot be loaded, or is not a causal model of text.
    """

    def __init__(self, model: ModelSpec) -> None:
        self._torch, self._transformers = library("torch"), library("transformers")
        self._model = load_model(model.model, model.local or LocalOptions())
        self.tokenizer = TransformersTokenizer(model)
        self.identity: Mapping[str, str] = identity_of(model.model, self._model)
        self.max_length = self._context_length(model.max_length)
        taken = inspect.signature(self._model.forward).parameters
        self._takes_positions = "position_ids" in taken
        self._cuts_logits = "logits_to_keep" in taken

    def _context_length(self, wanted: int | None) -> int:
        config = getattr(self._model.config, "text_config", None) or self._model.config
        known = next((int(length) for name in _LENGTHS if (length := getattr(config, name, None))), None)
        if wanted is not None:
            if known is not None and wanted > known:
                raise SpecificationError(f"max_length is {wanted}, but the model's context length is {known} tokens")
            return wanted
        of_tokenizer = self.tokenizer.inner.model_max_length
        return known or (int(of_tokenizer) if of_tokenizer and of_tokenizer < _UNLIMITED else _USUAL_MAX_LENGTH)

    def generate(self, prompts: Sequence[GenerationPrompt], how: Generation) -> list[Generated]:
        """Continue prompts as lm-eval's ``hf`` does, with the model's own defaults for what the task leaves open.

        Raises:
            MemoryError: the batch is too large.
        """
        with _memory_errors(self._torch), self._torch.inference_mode():
            ids, mask = self._padded([prompt.ids for prompt in prompts])
            watch = StopWatch(self._torch, self._decode, ids.shape[1], list(filter(None, how.stop)))
            sequences = self._model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=how.max_tokens,
                do_sample=False,
                pad_token_id=self.tokenizer.pad_token_id,
                use_cache=True,
                stopping_criteria=self._transformers.StoppingCriteriaList([watch]),
                **self._sampling(prompts, how),
            )
        rows = sequences[:, ids.shape[1] :].tolist()
        return [self._generated(row[:end], how.stop) for row, end in zip(rows, watch.ends_or_none(rows), strict=True)]

    def _sampling(self, prompts: Sequence[GenerationPrompt], how: Generation) -> dict[str, Any]:
        """Arguments of ``generate``. It chooses greedily what ``RowChoices`` has drawn, so a row has its own seed."""
        others = dict(how.others)
        if how.temperature == 0:
            return others
        choices = RowChoices.from_settings(
            self._torch,
            temperature=how.temperature,
            seeds=[prompt.seed for prompt in prompts],
            settings={**_warping(self._model.generation_config), **others},
        )
        kept = {name: value for name, value in others.items() if name not in RowChoices.SETTINGS}
        return {**kept, "logits_processor": self._transformers.LogitsProcessorList([choices])}

    def _generated(self, ids: list[int], stop: Sequence[str]) -> Generated:
        ends = self._end_ids()
        length = next((place for place, token in enumerate(ids) if token in ends), None)
        text = self._decode(ids)
        cut = text
        for term in filter(None, stop):
            cut = cut.partition(term)[0]
        num_tokens = len(ids) if length is None else length
        return Generated(cut, num_tokens, is_finished=length is not None or cut != text)

    def _end_ids(self) -> frozenset[int]:
        known = self._model.generation_config.eos_token_id
        return frozenset(() if known is None else (known,) if isinstance(known, int) else known)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def score(self, prompts: Sequence[ScoredPrompt]) -> list[Scored]:
        """Score continuations; those of one context after reading it once.

        Log-probabilities are computed in float32, whatever the weights' precision.

        Raises:
            MemoryError: the batch is too large.
        """
        by_context: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, prompt in enumerate(prompts):
            by_context[prompt.context].append(place)
        alone = [places[0] for places in by_context.values() if len(places) == 1]
        shared = [places for places in by_context.values() if len(places) > 1]
        scores: dict[int, Scored] = {}
        with _memory_errors(self._torch), self._torch.inference_mode():
            if alone:
                scores.update(zip(alone, self._score_alone([prompts[place] for place in alone]), strict=True))
            if shared:
                scores.update(self._score_shared(prompts, shared))
        return [scores[place] for place in range(len(prompts))]

    def _score_alone(self, prompts: Sequence[ScoredPrompt]) -> list[Scored]:
        ids, mask = self._padded([(*prompt.context, *prompt.continuation[:-1]) for prompt in prompts])
        longest = max(len(prompt.continuation) for prompt in prompts)
        logits = self._forward(ids, mask, keep=longest).logits[:, -longest:]
        return [
            self._scored(logits[row, longest - len(prompt.continuation) :], prompt.continuation)
            for row, prompt in enumerate(prompts)
        ]

    def _score_shared(self, prompts: Sequence[ScoredPrompt], groups: Sequence[Sequence[int]]) -> dict[int, Scored]:
        ids, mask = self._padded([prompts[group[0]].context for group in groups])
        read = self._forward(ids, mask, keep=1, use_cache=True)
        first = {place: read.logits[row, -1:] for row, group in enumerate(groups) for place in group}
        longer = [
            (row, place) for row, group in enumerate(groups) for place in group if len(prompts[place].continuation) > 1
        ]
        following = self._logits_after(read.past_key_values, mask, prompts, longer) if longer else {}
        scores = {}
        for place, logits in first.items():
            continuation = prompts[place].continuation
            if len(continuation) > 1:
                logits = self._torch.cat([logits, following[place][: len(continuation) - 1]])
            scores[place] = self._scored(logits, continuation)
        return scores

    def _logits_after(
        self, cache: Any, mask: Any, prompts: Sequence[ScoredPrompt], rows: Sequence[tuple[int, int]]
    ) -> dict[int, Any]:
        """Logits after each token of continuations but the last, whose contexts are in `cache`.

        Args:
            cache: keys and values of the contexts.
            mask: the contexts' attention mask.
            prompts: all prompts.
            rows: by continuation, the row of its context and its place among the prompts.
        """
        torch, device = self._torch, self._model.device
        of_rows = torch.tensor([row for row, _ in rows], device=device)
        cache.reorder_cache(of_rows)
        beginnings = [prompts[place].continuation[:-1] for _, place in rows]
        width = max(map(len, beginnings))
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([[*tokens, *[pad] * (width - len(tokens))] for tokens in beginnings], device=device)
        real = torch.tensor([[1] * len(tokens) + [0] * (width - len(tokens)) for tokens in beginnings], device=device)
        before = mask[of_rows]
        positions = before.sum(dim=1, keepdim=True) + torch.arange(width, device=device)
        output = self._forward(ids, torch.cat([before, real], dim=1), keep=width, positions=positions, cache=cache)
        return {place: output.logits[row, -width:] for row, (_, place) in enumerate(rows)}

    def _forward(
        self, ids: Any, mask: Any, *, keep: int, use_cache: bool = False, positions: Any = None, cache: Any = None
    ) -> Any:
        arguments: dict[str, Any] = {"use_cache": use_cache or cache is not None}
        if self._takes_positions:
            arguments["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0) if positions is None else positions
        if self._cuts_logits:
            arguments["logits_to_keep"] = keep
        if cache is not None:
            arguments["past_key_values"] = cache
        return self._model(input_ids=ids, attention_mask=mask, **arguments)

    def _scored(self, logits: Any, continuation: Sequence[int]) -> Scored:
        logits = logits.float()
        wanted = self._torch.tensor(continuation, device=logits.device)
        logprobs = logits.gather(1, wanted.unsqueeze(1)).squeeze(1) - logits.logsumexp(dim=1)
        return Scored(float(logprobs.sum()), bool((logits.argmax(dim=1) == wanted).all()))

    def _padded(self, prompts: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        """Left-padded token ids, and the attention mask."""
        width = max(map(len, prompts))
        pad, tensor, device = self.tokenizer.pad_token_id, self._torch.tensor, self._model.device
        ids = [[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return tensor(ids, device=device), tensor(mask, device=device)


def _warping(defaults: Any) -> dict[str, Any]:
    """The settings for sampling that the model's own generation configuration has."""
    return {name: value for name in RowChoices.SETTINGS if (value := getattr(defaults, name, None)) is not None}


@contextmanager
def _memory_errors(torch: Any) -> Iterator[None]:
    """Turn PyTorch's errors for want of memory, on whatever device, into MemoryError."""
    try:
        yield
    except RuntimeError as error:
        if not is_want_of_memory(error):
            raise
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        raise MemoryError(str(error)) from error


def is_want_of_memory(error: RuntimeError) -> bool:
    """Whether PyTorch raised it for want of memory: CUDA has a type of its own, the CPU's allocator has not."""
    words = str(error).lower()
    return type(error).__name__ == "OutOfMemoryError" or "out of memory" in words or "can't allocate memory" in words
