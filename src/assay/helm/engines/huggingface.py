"""A causal language model of ``transformers`` that answers HELM's requests in this process.

Prompts are left-padded and answered in batches; log-probabilities are the model's own. HELM's client for such models
differs: it answers one prompt at a time, and its log-probabilities are those of the distribution that it samples from,
which at temperature 0 puts everything on one token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.helm.engines.batches import cut_prompt, seed_of_batch
from assay.helm.running.bodies import check_supported, is_scoring
from assay.helm.running.generation_watch import GenerationWatch
from assay.helm.tokenization import read_tokenizer
from assay.inprocess.loading import identity_of, library, load_model
from assay.types import Completion, CompletionToken, LocalOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.helm.adaptation import Request
    from assay.types import Precision

_MAX_LOGITS = 1 << 28
"""Logits held at once while prompts are scored (1 GiB of float32)."""
_NO_MAX_LENGTH = 1_000_000
"""A tokenizer's ``model_max_length`` above this means that it is unknown."""


class HuggingFaceEngine:
    """Loads a model and its tokenizer, and answers requests.

    Args:
        path: the model's directory, or its name on the hub.
        batch_size: prompts in a batch.
        dtype: ``auto`` for the precision of the stored weights, or ``float32``, ``bfloat16``, ``float16``.
        device: PyTorch's device; by default a GPU if there is one.
        max_length: context length in tokens; by default as the model's configuration says.
        add_bos: let the tokenizer add its beginning-of-sequence token to prompts, as in HELM's client for such models;
            FlexLLMGen does not.
        seed: for sampling; a batch's seed depends on this and on its prompts.

    Raises:
        MissingDependencyError: PyTorch or transformers is not installed.
        SpecificationError: there is no such model, or it cannot be loaded.
    """

    def __init__(
        self,
        path: str,
        *,
        batch_size: int = 8,
        dtype: Precision = "auto",
        device: str | None = None,
        max_length: int | None = None,
        add_bos: bool = True,
        seed: int = 0,
    ) -> None:
        self.path = path
        self.batch_size = batch_size
        self._torch, transformers = library("torch"), library("transformers")
        self._transformers = transformers
        self._add_bos, self._seed = add_bos, seed
        self._model: Any = load_model(path, LocalOptions(dtype=dtype, device=device))
        self._device = self._model.device
        self._loaded = identity_of(path, self._model)
        try:
            self._tokenizer: Any = read_tokenizer(transformers, path)
        except Exception as error:  # transformers raises anything for a damaged file
            reason = " ".join(str(error).split())[:300]
            raise SpecificationError(f"the model {path!r} cannot be loaded: {reason}") from None
        self._ends = self._end_ids()
        # Drop the model's generation defaults: only the request decides, as with a server.
        self._model.generation_config = transformers.GenerationConfig()
        self._first = next(token for token in (self._tokenizer.bos_token_id, *self._ends, 0) if token is not None)
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token_id = self._first
        self.max_length = max_length or self._known_max_length()

    @property
    def end_of_text(self) -> str | None:
        """The end-of-sequence token."""
        return self._tokenizer.eos_token or None

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and everything that can change its answers."""
        return {
            "model": f"hf:{self.path}",
            **self._loaded,
            "window": self.max_length,
            "begins": self._add_bos,
            "seed": self._seed,
        }

    def check_supported(self, request: Request) -> None:
        """Refuse requests that are not text, or that ask for penalties."""
        check_supported(request, "completions")
        try:
            request.prompt.encode()
        except UnicodeEncodeError as error:
            half = request.prompt[error.start : error.end]
            raise UnsupportedTaskError(
                f"a prompt of the run has a lone surrogate, {half!r}, which has no tokens"
            ) from None
        if request.presence_penalty or request.frequency_penalty:
            raise UnsupportedTaskError(
                "the run asks for presence or frequency penalties, which hf: models do not support"
            )

    def truncate_prompt(self, request: Request) -> Request:
        """Cut the prompt at its end, as HELM's window services do.

        They do not count the beginning-of-sequence token. It needs no room, because the last generated token is never
        fed to the model.
        """
        added = len(self._ids(request.prompt)) - len(self._plain_ids(request.prompt))
        room = self.max_length - request.max_tokens - max(0, added - 1)
        return cut_prompt(request, room, self.max_length, self._plain_ids, self._decoded)

    def count_tokens(self, prompt: str) -> int:
        """The prompt's number of tokens, with the beginning-of-sequence token."""
        return len(self._ids(prompt))

    def generate(self, requests: Sequence[Request]) -> Sequence[Sequence[Completion]]:
        """Answer a batch.

        Raises:
            SpecificationError: the batch does not fit into memory, or the context is shorter than ``max_length``.
        """
        try:
            with self._torch.inference_mode():
                return self._scored(requests) if is_scoring(requests[0]) else self._generated(requests)
        except IndexError as error:  # there is no embedding for that position
            raise SpecificationError(
                f"the model {self.path!r} fails ({error}): its context length may be below {self.max_length} tokens "
                "(--max-length), or its tokenizer may belong to another model"
            ) from error
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            raise SpecificationError(
                f"a batch of {len(requests)} prompts does not fit into memory; answers so far are kept: run the same "
                "command again with a smaller --batch-size"
            ) from error

    def _generated(self, requests: Sequence[Request]) -> list[list[Completion]]:
        one = requests[0]
        if one.max_tokens == 0:
            return [[Completion(text="", finish_reason="length")] * one.num_completions for _ in requests]
        ids, mask = self._padded([self._ids(request.prompt) for request in requests], "left")
        # Greedy completions are all the same, so one is generated.
        copies = one.num_completions if one.temperature else 1
        watch = GenerationWatch(self._torch, self._decoded, ids.shape[1], one.stop_sequences)
        self._torch.manual_seed(seed_of_batch(self._seed, requests))
        sequences = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=self._generation_config(one, copies),
            logits_processor=self._transformers.LogitsProcessorList([watch.on_logits]),
            stopping_criteria=self._transformers.StoppingCriteriaList([watch.on_tokens]),
        )
        generated = sequences[:, ids.shape[1] :].tolist()
        logprobs = watch.logprobs_by_row()
        rows = [
            self._completion(row[:stopped], values, is_stopped=stopped is not None)
            for row, stopped, values in zip(generated, watch.ends, logprobs, strict=True)
        ]
        per_request = [rows[first : first + copies] for first in range(0, len(rows), copies)]
        return [answers * (one.num_completions // copies) for answers in per_request]

    def _generation_config(self, request: Request, copies: int) -> Any:
        how: dict[str, Any] = {"do_sample": False}
        if request.temperature:
            how = {
                "do_sample": True,
                "temperature": float(request.temperature),
                "top_p": float(request.top_p),
                "top_k": 0,
            }
        return self._transformers.GenerationConfig(
            max_new_tokens=request.max_tokens,
            num_return_sequences=copies,
            eos_token_id=self._ends or None,
            pad_token_id=self._tokenizer.pad_token_id,
            **how,
        )

    def _completion(self, ids: list[int], logprobs: list[float], *, is_stopped: bool) -> Completion:
        end = next((index for index, token in enumerate(ids) if token in self._ends), len(ids))
        pairs = zip(ids[:end], logprobs[:end], strict=True)
        return Completion(
            text=self._decoded(ids[:end]),
            finish_reason="stop" if is_stopped or end < len(ids) else "length",
            tokens=tuple(CompletionToken(self._decoded([token]), logprob) for token, logprob in pairs),
        )

    def _scored(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The prompts' own tokens, without a beginning-of-sequence token that the tokenizer added."""
        prompts = [self._ids(request.prompt) for request in requests]
        at_once = max(1, _MAX_LOGITS // (max(map(len, prompts)) * self._model.config.vocab_size))
        answers = []
        for first in range(0, len(prompts), at_once):
            ids, mask = self._padded(prompts[first : first + at_once], "right")
            logits = self._model(input_ids=ids, attention_mask=mask).logits
            for row, prompt in enumerate(prompts[first : first + at_once]):
                logprobs = self._torch.log_softmax(logits[row, : len(prompt) - 1].float(), dim=-1)
                chosen = ids[row, 1 : len(prompt)].unsqueeze(1)
                values = [0, *logprobs.gather(1, chosen).squeeze(1).tolist()]
                answers.append([self._echo(requests[first + row].prompt, prompt, values)])
        return answers

    def _echo(self, text: str, ids: list[int], logprobs: Sequence[int | float]) -> Completion:
        added = len(ids) - len(self._plain_ids(text))
        tokens = zip(ids[added:], logprobs[added:], strict=True)
        return Completion(
            text=text,
            finish_reason="length",
            tokens=tuple(CompletionToken(self._decoded([token]), logprob) for token, logprob in tokens),
        )

    def _plain_ids(self, prompt: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(prompt, add_special_tokens=False)
        return ids

    def _ids(self, prompt: str) -> list[int]:
        """The prompt's tokens as the model gets them, with the beginning-of-sequence token."""
        add_bos = self._add_bos and not (self._tokenizer.bos_token and prompt.startswith(self._tokenizer.bos_token))
        ids: list[int] = self._tokenizer.encode(prompt, add_special_tokens=add_bos)
        return ids or [self._first]

    def _padded(self, prompts: Sequence[Sequence[int]], side: str) -> tuple[Any, Any]:
        """Token ids and attention mask, both of shape (prompts, longest prompt)."""
        width = max(map(len, prompts))
        pad = self._tokenizer.pad_token_id
        ids, mask = [], []
        for prompt in prompts:
            padding = width - len(prompt)
            parts = ([pad] * padding, [*prompt]) if side == "left" else ([*prompt], [pad] * padding)
            ones = ([0] * padding, [1] * len(prompt)) if side == "left" else ([1] * len(prompt), [0] * padding)
            ids.append(parts[0] + parts[1])
            mask.append(ones[0] + ones[1])
        return self._torch.tensor(ids, device=self._device), self._torch.tensor(mask, device=self._device)

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text

    def _end_ids(self) -> list[int]:
        """The end-of-sequence tokens of the model's generation configuration, or else of its tokenizer."""
        known = self._model.generation_config.eos_token_id
        if known is None:
            known = self._tokenizer.eos_token_id
        return [] if known is None else [known] if isinstance(known, int) else list(known)

    def _known_max_length(self) -> int:
        of_model = getattr(self._model.config, "max_position_embeddings", None)
        of_tokenizer = self._tokenizer.model_max_length
        known = [int(length) for length in (of_model, of_tokenizer) if length and length < _NO_MAX_LENGTH]
        if not known:
            raise SpecificationError(
                f"the files of the model {self.path!r} do not say its context length; give it with --max-length"
            )
        return min(known)
