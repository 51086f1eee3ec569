"""The tokenizer of transformers, with the interface of those that split prompts for servers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError
from assay.inprocess.loading import library
from assay.tasks.chat_template import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.types import ModelSpec

_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")


class TransformersTokenizer:
    """A model's tokenizer, used as lm-eval's ``hf`` uses it: it adds the special tokens that it adds by itself.

    Args:
        model: names it, and says whether it is to add its BOS token though it would not.

    Raises:
        SpecificationError: it cannot be loaded.
    """

    cuts_prompts = True

    def __init__(self, model: ModelSpec) -> None:
        options = model.local
        source = model.tokenizer or model.model
        origin: dict[str, Any] = {"revision": model.tokenizer_revision or (options and options.revision) or "main"}
        if options is not None:
            origin["trust_remote_code"] = options.trust_remote_code
        if model.add_bos_token:
            origin["add_bos_token"] = True
        try:
            self.inner: Any = library("transformers").AutoTokenizer.from_pretrained(source, **origin)
        except Exception as error:  # transformers raises anything for a damaged file
            reason = " ".join(str(error).split())[:300]
            raise SpecificationError(f"the tokenizer of '{source}' cannot be loaded: {reason}") from None
        self.source = source
        self._prefix_token_id = model.custom_prefix_token_id
        self._adds: dict[str, bool] = {"add_special_tokens": True} if model.add_bos_token else {}
        self.eos_token: str | None = self.inner.eos_token or None
        if self.inner.pad_token_id is None:
            self.inner.pad_token = self.inner.unk_token or self.inner.eos_token
        self.pad_token_id: int = self.inner.pad_token_id or 0
        self.encode: Callable[[str], list[int]] = self._encode

    def _encode(self, text: str) -> list[int]:
        adds = {"add_special_tokens": False} if self._begins_with_prefix(text) else self._adds
        ids: list[int] = self.inner.encode(text, **adds)
        return ids

    def _begins_with_prefix(self, text: str) -> bool:
        """A chat template may have put it there already."""
        bos = self.inner.bos_token
        return bool(bos) and text.startswith(bos)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `ids`."""
        text: str = self.inner.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context: the BOS token, else the EOS token.

        Raises:
            SpecificationError: the tokenizer names neither.
        """
        for token_id in (self._prefix_token_id, self.inner.bos_token_id, self.inner.eos_token_id):
            if token_id is not None:
                return int(token_id)
        raise SpecificationError(
            f"the tokenizer of '{self.source}' names no bos_token and no eos_token; one of them has to stand before a "
            "text without context"
        )

    @functools.cached_property
    def chat_template(self) -> ChatTemplate:
        """The template by which conversations become text.

        Raises:
            SpecificationError: the tokenizer has none.
        """
        template = self.inner.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if not isinstance(template, str):
            raise SpecificationError(f"the tokenizer of '{self.source}' has no chat template; leave out the option")
        names = {f"{role}_token": getattr(self.inner, f"{role}_token", None) for role in _ROLES}
        return ChatTemplate(template, {name: text for name, text in names.items() if text}, self.source)

    @property
    def recorded(self) -> dict[str, Any]:
        """Its special tokens, as lm-eval writes them into results."""
        inner = self.inner
        return {
            "tokenizer_pad_token": [inner.pad_token, str(inner.pad_token_id)],
            "tokenizer_eos_token": [inner.eos_token, str(inner.eos_token_id)],
            "tokenizer_bos_token": [inner.bos_token, str(inner.bos_token_id)],
            "eot_token_id": inner.eos_token_id,
        }
