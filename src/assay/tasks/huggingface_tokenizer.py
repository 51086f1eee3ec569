"""A tokenizer from the Hugging Face hub, in place of transformers' ``AutoTokenizer`` that lm-eval uses.

Reads what ``save_pretrained`` writes: ``tokenizer.json``, and the special tokens' names beside it. transformers itself
is not needed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import FileFormatError, MissingDependencyError, SpecificationError
from assay.tasks.chat_template import ChatTemplate
from assay.tasks.line_encoding import LineEncoder
from assay.tasks.piece_encoding import PieceEncoder
from assay.tasks.splitting import known_splitting

if TYPE_CHECKING:
    from collections.abc import Sequence

_VOCABULARY = "tokenizer.json"
_CONFIG = "tokenizer_config.json"
_LEGACY_NAMES = "special_tokens_map.json"
_CHAT_TEMPLATE = "chat_template.jinja"
_NAMED_IN_TEMPLATES = tuple(f"{role}_token" for role in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))


class HuggingFaceTokenizer:
    """Text to token ids and back, without special tokens of its own accord.

    Args:
        source: a folder with ``tokenizer.json``, or a repository on the Hugging Face hub.
        revision: branch, tag or commit of the repository.
        add_special_tokens: add the special tokens that the tokenizer itself adds, mostly one at the beginning.
        prefix_token_id: the token before a text without context, in place of the BOS token.

    Raises:
        MissingDependencyError: the library ``tokenizers`` is not installed.
        SpecificationError: there is no such tokenizer.
        FileFormatError: its files are damaged.
    """

    cuts_prompts = True

    def __init__(
        self,
        source: str,
        *,
        revision: str | None = None,
        add_special_tokens: bool = False,
        prefix_token_id: int | None = None,
    ) -> None:
        try:
            import tokenizers
        except ModuleNotFoundError:
            raise MissingDependencyError(
                'a tokenizer needs the package tokenizers: pip install "assay[tokenizer]"'
            ) from None
        self.source = source
        self._add_special_tokens = add_special_tokens
        self._prefix_token_id = prefix_token_id
        self._find = functools.partial(_find, source, revision=revision)
        vocabulary = self._find(_VOCABULARY)
        if vocabulary is None:
            raise SpecificationError(
                f"tokenizer '{source}' has no {_VOCABULARY}; save it with save_pretrained() of a fast tokenizer first"
            )
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
        except Exception as error:  # the library raises plain Exception
            raise FileFormatError(f"cannot read {vocabulary} as a tokenizer: {error}") from None
        # A tokenizer saved after use may truncate or pad; transformers switches both off at each call.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.encode: Callable[[str], list[int]] = self._encode
        """Token ids of a text, without special tokens added."""
        splitting = None if add_special_tokens else known_splitting(vocabulary.read_bytes())
        if splitting is not None:
            self.encode = LineEncoder(PieceEncoder(self._encode, splitting))
        self._names = names = _special_names(self._find)
        self.pad_token, self.pad_token_id = self._special(names.get("pad_token"))
        self.eos_token, self.eos_token_id = self._special(names.get("eos_token"))
        self.bos_token, self.bos_token_id = self._special(names.get("bos_token"))

    def _special(self, name: str | None) -> tuple[str | None, int | None]:
        return name, None if name is None else self._tokenizer.token_to_id(name)

    @functools.cached_property
    def chat_template(self) -> ChatTemplate:
        """The template by which conversations become text.

        Raises:
            SpecificationError: the tokenizer has none, or none that is its default, or it cannot be read.
        """
        names = {name: self._names[name] for name in _NAMED_IN_TEMPLATES if name in self._names}
        return ChatTemplate(_chat_template(self._find, self.source), names, self.source)

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context: the BOS token, else the EOS token.

        Raises:
            SpecificationError: the tokenizer names neither.
        """
        for token_id in (self._prefix_token_id, self.bos_token_id, self.eos_token_id):
            if token_id is not None:
                return token_id
        raise SpecificationError(
            f"tokenizer '{self.source}' names no bos_token and no eos_token in {_CONFIG}; one of them has to stand "
            "before a text without context"
        )

    @property
    def recorded(self) -> dict[str, Any]:
        """Its special tokens, as lm-eval writes them into results."""
        return {
            "tokenizer_pad_token": [self.pad_token, str(self.pad_token_id)],
            "tokenizer_eos_token": [self.eos_token, str(self.eos_token_id)],
            "tokenizer_bos_token": [self.bos_token, str(self.bos_token_id)],
            "eot_token_id": self.eos_token_id,
        }

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=self._add_special_tokens).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text


_Find = Callable[[str], Path | None]
"""Where a file of the tokenizer lies, by its name."""


def _special_names(find: _Find) -> dict[str, str]:
    """Special tokens by role, as transformers finds them: the older file counts only where the newer lacks details."""
    config = _read_json(find(_CONFIG))
    entries = config if "added_tokens_decoder" in config else config | _read_json(find(_LEGACY_NAMES))
    contents = {
        role: entry.get("content") if isinstance(entry, dict) else entry
        for role, entry in entries.items()
        if role.endswith("_token")
    }
    return {role: content for role, content in contents.items() if isinstance(content, str)}


def _chat_template(find: _Find, source: str) -> str:
    file = find(_CHAT_TEMPLATE)
    if file is not None:
        return file.read_text(encoding="utf-8")
    template = _read_json(find(_CONFIG)).get("chat_template")
    if isinstance(template, list):  # several, each with its name
        template = next((entry.get("template") for entry in template if entry.get("name") == "default"), None)
    if isinstance(template, str):
        return template
    raise SpecificationError(
        f"tokenizer '{source}' has no chat template, neither in {_CHAT_TEMPLATE} nor a default one in {_CONFIG}"
    )


def _read_json(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(f"cannot read {path}: {error}") from None
    if not isinstance(content, dict):
        raise FileFormatError(f"{path} holds no JSON object")
    return content


def _find(source: str, name: str, *, revision: str | None = None) -> Path | None:
    """A file of the tokenizer; None if there is no such file in it."""
    folder = Path(source)
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    if source.startswith((".", "/", "~")) or source.count("/") > 1:
        raise SpecificationError(f"there is no folder '{source}' to read a tokenizer from")
    return _find_on_hub(source, name, revision)


def _find_on_hub(repository: str, name: str, revision: str | None) -> Path | None:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    from assay.tasks.patches.datasets_library import hub_is_reachable

    try:
        # The library itself would try for half a minute, and say so at each attempt.
        return Path(hf_hub_download(repository, name, revision=revision, local_files_only=not hub_is_reachable()))
    except LocalEntryNotFoundError:
        if name != _VOCABULARY:
            return None  # Offline, a file that was never there looks like one that was never fetched.
        reason = "the hub cannot be reached, and it is not in the cache"
    except EntryNotFoundError:
        return None
    except Exception as error:  # network, authorisation, a malformed name: many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
    raise SpecificationError(
        f"tokenizer '{repository}' is neither a folder nor available from the Hugging Face hub: {reason}"
    )
