"""A causal language model of ``transformers`` that answers HELM's requests in this process.

Prompts go left-padded, in batches. What HELM's own client for such models does otherwise: it asks one prompt at a time,
and its log-probabilities are those of the distribution that it samples from, at temperature 0 all on one token.
Here they are the model's own.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from assay.errors import MissingDependencyError, SpecificationError, UnsupportedTaskError
from assay.helm.running.bodies import is_scoring, refuse_impossible
from assay.helm.running.generation_watch import Watch
from assay.helm.tokenization import read_tokenizer
from assay.types import Completion, CompletionToken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.helm.adaptation import Request

_MOST_LOGITS = 1 << 28
"""How many of a batch of prompts are held at once (1 GiB of float32)."""
_NO_LIMIT = 1_000_000
"""Tokenizers of models whose makers name no length say something above this."""


class HuggingFaceEngine:
    """Loads a model and its tokenizer, and generates.

    Args:
        path: the model's directory, or its name on the hub.
        batch_size: prompts at a time.
        dtype: ``auto`` for the precision that its weights are stored in, or ``float32``, ``bfloat16``, ``float16``.
        device: where it runs; by default a GPU if there is one.
        window: its context length in tokens; by default what its configuration says.
        begins: whether the tokenizer may put its beginning-of-sequence token before prompts, as HELM's client for such
            models lets it; FlexLLMGen does not.
        seed: of what is sampled; together with the prompts of a batch.

    Raises:
        MissingDependencyError: PyTorch or transformers is not installed.
        SpecificationError: there is no such model, or it cannot be loaded.
    """

    def __init__(
        self,
        path: str,
        *,
        batch_size: int = 8,
        dtype: str = "auto",
        device: str | None = None,
        window: int | None = None,
        begins: bool = True,
        seed: int = 0,
    ) -> None:
        self.path = path
        self.batch_size = batch_size
        self._torch, transformers = _import("torch"), _import("transformers")
        self._transformers = transformers
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()  # it remarks on prompts that are cut before they are used
        self._dtype, self._begins, self._seed = dtype, begins, seed
        self._device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        try:
            self._tokenizer: Any = read_tokenizer(transformers, path)
            model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype)
            self._model: Any = model.to(self._device).eval()
        except Exception as error:  # its files may be anything
            reason = " ".join(str(error).split())[:300]
            raise SpecificationError(f"the model {path!r} cannot be loaded: {reason}") from None
        self._ends = self._end_ids()
        # Only what a request asks for decides how it is answered, as with a server.
        self._model.generation_config = transformers.GenerationConfig()
        self._first = next(token for token in (self._tokenizer.bos_token_id, *self._ends, 0) if token is not None)
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token_id = self._first
        self.window = window or self._known_window()

    @property
    def end_of_text(self) -> str | None:
        """The end-of-sequence token."""
        return self._tokenizer.eos_token or None

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and all that can change its answers."""
        return {
            "model": f"hf:{self.path}",
            "files": _fingerprint(self.path, self._model.config),
            "dtype": self._dtype,
            "window": self.window,
            "begins": self._begins,
            "seed": self._seed,
        }

    def refuse_impossible(self, request: Request) -> None:
        """Refuse what is not text, or has settings that generation here knows nothing of."""
        refuse_impossible(request, "completions")
        try:
            request.prompt.encode()
        except UnicodeEncodeError as error:
            half = request.prompt[error.start : error.end]
            raise UnsupportedTaskError(
                f"a prompt of the run has half a character, {half!r}, which has no tokens"
            ) from None
        if request.presence_penalty or request.frequency_penalty:
            raise UnsupportedTaskError("the run asks for presence or frequency penalties, which hf: models do not have")

    def fitted(self, request: Request) -> Request:
        """Cut the prompt from the right, as HELM's windows do.

        They do not count the token that begins it, and need not: the last token generated is never fed to the model.
        """
        ids = self._plain_ids(request.prompt)
        added = len(self._ids(request.prompt)) - len(ids)
        room = self.window - request.max_tokens - max(0, added - 1)
        if room < 1:
            raise UnsupportedTaskError(
                f"the run asks for {request.max_tokens} tokens, and the model's window has {self.window}"
            )
        if len(ids) <= room:
            return request
        kept = ids[:room]
        # The text of some tokens is split into more of them again.
        while len(self._plain_ids(prompt := self._decoded(kept))) > room:
            kept = kept[:-1]
        return msgspec.structs.replace(request, prompt=prompt)

    def length(self, prompt: str) -> int:
        """Its tokens, with the one that begins it."""
        return len(self._ids(prompt))

    def generate(self, requests: Sequence[Request]) -> Sequence[Sequence[Completion]]:
        """Answer a batch.

        Raises:
            SpecificationError: it does not fit into memory, or the model's window is not as long as was said.
        """
        try:
            with self._torch.inference_mode():
                return self._scored(requests) if is_scoring(requests[0]) else self._generated(requests)
        except IndexError as error:  # there is no embedding for that place
            raise SpecificationError(
                f"the model {self.path!r} fails ({error}): its window may be shorter than {self.window} tokens "
                "(--max-length), or its tokenizer another model's"
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
        # A greedy answer comes once, however often it is asked for.
        copies = one.num_completions if one.temperature else 1
        watch = Watch(self._torch, self._decoded, ids.shape[1], one.stop_sequences)
        self._torch.manual_seed(self._seed_of(requests))
        sequences = self._model.generate(
            input_ids=ids,
            attention_mask=mask,
            generation_config=self._generation_config(one, copies),
            logits_processor=self._transformers.LogitsProcessorList([watch.see_logits]),
            stopping_criteria=self._transformers.StoppingCriteriaList([watch.see_tokens]),
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
        end = next((place for place, token in enumerate(ids) if token in self._ends), len(ids))
        pairs = zip(ids[:end], logprobs[:end], strict=True)
        return Completion(
            text=self._decoded(ids[:end]),
            finish_reason="stop" if is_stopped or end < len(ids) else "length",
            tokens=tuple(CompletionToken(self._decoded([token]), logprob) for token, logprob in pairs),
        )

    def _scored(self, requests: Sequence[Request]) -> list[list[Completion]]:
        """The prompts' own tokens. One that begins the prompt but is not in its text is left out."""
        prompts = [self._ids(request.prompt) for request in requests]
        at_once = max(1, _MOST_LOGITS // (max(map(len, prompts)) * self._model.config.vocab_size))
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
        """The prompt's tokens as they are fed to the model, with the one that begins it."""
        begins = self._begins and not (self._tokenizer.bos_token and prompt.startswith(self._tokenizer.bos_token))
        ids: list[int] = self._tokenizer.encode(prompt, add_special_tokens=begins)
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

    def _seed_of(self, requests: Sequence[Request]) -> int:
        """A seed for a batch, so that what it samples depends on nothing that went before."""
        digest = hashlib.sha256(str(self._seed).encode())
        for request in requests:
            digest.update(msgspec.json.encode((request.prompt, request.random)))
        return int.from_bytes(digest.digest()[:7])

    def _end_ids(self) -> list[int]:
        """The tokens with which the model ends, as its generation configuration or else its tokenizer says."""
        known = self._model.generation_config.eos_token_id
        if known is None:
            known = self._tokenizer.eos_token_id
        return [] if known is None else [known] if isinstance(known, int) else list(known)

    def _known_window(self) -> int:
        of_model = getattr(self._model.config, "max_position_embeddings", None)
        of_tokenizer = self._tokenizer.model_max_length
        known = [int(length) for length in (of_model, of_tokenizer) if length and length < _NO_LIMIT]
        if not known:
            raise SpecificationError(
                f"the model {self.path!r} does not say how long its window is; say so (--max-length)"
            )
        return min(known)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingDependencyError(
            f"a model in this process needs the package {name}: pip install 'assay[helm,hf]'"
        ) from None


def _fingerprint(path: str, config: Any) -> Any:
    """What tells a model from another of the same name: the hub's commit, or its files' sizes and times."""
    folder = Path(path)
    if not folder.is_dir():
        return getattr(config, "_commit_hash", None)
    return [[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in sorted(folder.glob("*.*"))]
