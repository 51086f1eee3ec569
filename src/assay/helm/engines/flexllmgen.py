"""FlexLLMGen answers HELM's requests in this process, as its ``helm_run.py`` does.

Prompts get no beginning-of-sequence token. A batch always has FlexLLMGen's full number of rows, of which the last may
be padding. Tokens are the tokenizer's own pieces (``Ġriver``), and their log-probabilities are 0: FlexLLMGen returns
none.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError, UnsupportedTaskError
from assay.flexllmgen.opt_model import OptModel
from assay.flexllmgen.policy import read_policy_options
from assay.helm.engines.batches import cut_prompt, seed_of_batch
from assay.helm.running.bodies import check_supported
from assay.helm.tokenization import read_tokenizer
from assay.types import Completion, CompletionToken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.helm.adaptation import Request

_GREEDY = 1e-7
"""The temperature that ``helm_run.py`` gives FlexLLMGen for 0."""


class FlexLLMGenEngine:
    """Loads an OPT model with FlexLLMGen, and answers requests.

    Args:
        path: the model's directory, or its name on the hub.
        options: FlexLLMGen's options by its own names; see :class:`assay.flexllmgen.policy.PolicyOptions`.
        seed: for sampling; a batch's seed depends on this and on its prompts.

    Raises:
        MissingDependencyError: FlexLLMGen, PyTorch or transformers is not installed.
        SpecificationError: an option is wrong, or FlexLLMGen cannot run the model.
        OutputError: the weights cannot be written in FlexLLMGen's format.
    """

    def __init__(self, path: str, options: Mapping[str, Any] | None = None, *, seed: int = 0) -> None:
        self.path = path
        self._options = read_policy_options(options or {})
        self._seed = seed
        self._model = OptModel(path, self._options)
        self.batch_size = self._options.effective_batch_size
        self.max_length = self._model.max_length
        try:
            self._tokenizer: Any = read_tokenizer(importlib.import_module("transformers"), path)
        except Exception as error:  # transformers raises anything for a damaged file
            reason = " ".join(str(error).split())[:300]
            raise SpecificationError(f"the tokenizer of {path!r} cannot be loaded: {reason}") from None

    @property
    def end_of_text(self) -> str | None:
        """None: ``helm_run.py`` cuts answers only at the request's stop sequences."""
        return None

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model and everything that can change its answers."""
        packages = ("torch", "transformers")
        return {
            "model": f"flexllmgen:{self.path}",
            "package": self._model.package,
            "weights": self._model.weights.digest,
            "gpu": self._model.has_gpu,
            **self._options.answers_depend_on,
            **{name: importlib.metadata.version(name) for name in packages},
            "seed": self._seed,
        }

    def check_supported(self, request: Request) -> None:
        """Refuse what FlexLLMGen cannot do, so that nothing a request asks for is ignored in silence."""
        if request.echo_prompt:
            raise UnsupportedTaskError(
                "the run scores prompts by their log-probabilities, and FlexLLMGen returns none: use --model "
                f"hf:{self.path}, or multiple_choice_joint in place of multiple_choice_separate"
            )
        check_supported(request, "completions")
        if request.num_completions > 1:
            raise UnsupportedTaskError(
                f"the run asks for {request.num_completions} completions of a prompt, and FlexLLMGen gives one"
            )
        if request.temperature and request.top_p != 1:
            raise UnsupportedTaskError(f"the run asks for top_p={request.top_p}, and FlexLLMGen has no top_p")
        if request.presence_penalty or request.frequency_penalty:
            raise UnsupportedTaskError("the run asks for presence or frequency penalties, which FlexLLMGen has not")

    def truncate_prompt(self, request: Request) -> Request:
        """Cut the prompt at its end, as HELM's window services do.

        The last generated token is never fed to the model and needs no room.
        """
        room = self._model.longest_prompt(request.max_tokens)
        return cut_prompt(request, room, self.max_length, self._ids, self._decoded)

    def count_tokens(self, prompt: str) -> int:
        """The prompt's number of tokens."""
        return len(self._ids(prompt))

    def generate(self, requests: Sequence[Request]) -> Sequence[Sequence[Completion]]:
        """Answer a batch.

        Raises:
            SpecificationError: the batch does not fit into memory.
        """
        one = requests[0]
        if one.max_tokens == 0:
            return [[Completion(text="", finish_reason="length")] for _ in requests]
        stop = self._stop_token(one.stop_sequences)
        try:
            rows = self._model.generate(
                [self._ids(request.prompt) for request in requests],
                one.max_tokens,
                temperature=float(one.temperature) or _GREEDY,
                stop=stop,
                seed=seed_of_batch(self._seed, requests),
            )
        except RuntimeError as error:
            if "memory" not in str(error):
                raise
            raise SpecificationError(
                f"a batch of {self.batch_size} prompts does not fit into memory; answers so far are kept: run the same "
                "command again with a smaller gpu_batch_size, or with another percent"
            ) from error
        return [[self._completion(row, one.stop_sequences)] for row in rows]

    def close(self) -> None:
        """End FlexLLMGen's threads."""
        self._model.close()

    def _completion(self, ids: Sequence[int], stops: Sequence[str]) -> Completion:
        text = self._decoded(ids)
        pieces: list[str] = self._tokenizer.convert_ids_to_tokens(ids)
        return Completion(
            text=text,
            finish_reason="stop" if any(stop in text for stop in stops) else "length",
            tokens=tuple(CompletionToken(piece, 0) for piece in pieces),
        )

    def _stop_token(self, stops: Sequence[str]) -> int | None:
        """The token that FlexLLMGen stops at; other stop sequences are cut from whole answers afterwards."""
        tokens = [self._ids(stop) for stop in stops]
        return tokens[0][0] if len(tokens) == 1 and len(tokens[0]) == 1 else None

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _decoded(self, ids: Sequence[int]) -> str:
        text: str = self._tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        return text
