"""A tokenizer of OpenAI's, by the library tiktoken, as lm-eval's ``tokenizer_backend=tiktoken`` uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from assay.errors import MissingDependencyError, SpecificationError

if TYPE_CHECKING:
    from collections.abc import Sequence


class TiktokenTokenizer:
    """Text to token ids and back. Names of special tokens in a text are text.

    Args:
        name: of a model that tiktoken knows, or of an encoding, such as ``o200k_base``.
        prefix_token_id: the token before a text without context, in place of the end-of-text token.

    Raises:
        MissingDependencyError: the library ``tiktoken`` is not installed.
        SpecificationError: tiktoken has no such encoding, or cannot fetch it.
    """

    recorded: ClassVar[dict[str, Any]] = {}
    """lm-eval writes nothing of it."""
    cuts_prompts = False

    def __init__(self, name: str, *, prefix_token_id: int | None = None) -> None:
        try:
            import tiktoken
        except ModuleNotFoundError:
            raise MissingDependencyError(
                f"tokenizer 'tiktoken:{name}' needs the package tiktoken: pip install tiktoken"
            ) from None
        self._name = name
        try:
            self._encoding = _encoding(tiktoken, name)
        except Exception as error:  # the network, damaged files, a broken plug-in: many kinds
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise SpecificationError(f"tokenizer 'tiktoken:{name}' cannot be loaded: {reason}") from None
        self._end = self._encoding.eot_token
        self.prefix_token_id = self._end if prefix_token_id is None else prefix_token_id
        self.eos_token: str | None = self._encoding.decode([self._end])

    @property
    def chat_template(self) -> NoReturn:
        """There is none.

        Raises:
            SpecificationError: always.
        """
        raise SpecificationError(f"tokenizer 'tiktoken:{self._name}' has no chat template; ask the chat endpoint")

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        ids: list[int] = self._encoding.encode_ordinary(text)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        text: str = self._encoding.decode(list(ids))
        return text


def _encoding(tiktoken: Any, name: str) -> Any:
    try:
        return tiktoken.encoding_for_model(name)
    except KeyError:
        return tiktoken.get_encoding(name)
