"""Writes the lines and hashes of lm-eval's samples files: JSON equal to lm-eval's, but faster.

msgspec and the standard library, which lm-eval uses, write texts, whole numbers and ordinary fractions alike.
Everything else in a line (1e-05, NaN, NumPy's numbers, other types) is left to the standard library.
"""

from __future__ import annotations

import functools
import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from assay.tasks.chat_text import ChatPrompt, quoted
from assay.tasks.lm_eval_json import lm_eval_json
from assay.tasks.patches.shared_settings import SharedSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from fractions import Fraction

    from assay.tasks.protocol import Task
    from assay.types import Sample


class SampleLines(msgspec.Struct):
    """The common part of a scored sample's lines, from which :meth:`line` makes one for each filter."""

    head: dict[str, Any]
    """The beginning of every line."""
    hashes: bytes
    """SHA-256 of document, prompt and target, one after another."""

    @classmethod
    def of(cls, sample: Sample, task: Task, doc: Any) -> SampleLines:
        """Make the common part from a sample whose instances hold their responses.

        Args:
            sample: the sample.
            task: lm-eval's Task object.
            doc: its document, as the task's scorer left it.
        """
        first = sample.instances[0]
        target = str(task.doc_to_target(doc))
        written = asked = _json(doc)
        if doc is not first.doc:
            asked = _json(first.doc)
        head = {
            "doc_id": sample.doc_id,
            "doc": msgspec.Raw(written),
            "target": target,
            "arguments": {f"gen_args_{n}": _arguments(instance.args) for n, instance in enumerate(sample.instances)},
            "resps": [_texts(instance.resps) for instance in sample.instances],
        }
        hashes = _sha256(_indented(asked, first.doc)) + _prompt_sha256(first.arguments[0]) + _target_sha256(target)
        return cls(head, hashes)

    def line(
        self,
        filter_name: str,
        filtered: list[Any],
        metrics: dict[str, Any],
        repeats: Mapping[str, Fraction] | None = None,
    ) -> bytes:
        """The line for one filter.

        Args:
            filter_name: the filter.
            filtered: what it extracted from the responses, one entry for each instance.
            metrics: the task's metrics of these.
            repeats: metrics over all repeated answers, which lm-eval's lines do not have.
        """
        hashes = self.hashes.hex()
        line = {
            **self.head,
            "filtered_resps": _texts(filtered),
            "filter": filter_name,
            "metrics": list(metrics),
            "doc_hash": hashes[:64],
            "prompt_hash": hashes[64:128],
            "target_hash": hashes[128:],
            **{name: _encodable(value) for name, value in metrics.items()},
        }
        if repeats:
            line["repeats"] = {name: _encodable(float(value)) for name, value in repeats.items()}
        try:
            return _fast.encode_lines([line])
        except UnicodeEncodeError:
            return _fast.encode_lines([{name: msgspec.Raw(quoted(value)) for name, value in line.items()}])


_fast = msgspec.json.Encoder()


def _json(value: Any) -> bytes:
    if type(value) is dict and _are_plain(value.values()):
        with suppress(
            UnicodeEncodeError, OverflowError, TypeError
        ):  # lone surrogates, large numbers, keys of other types
            return _fast.encode(value)
    # A lone surrogate in a model's text cannot be written as UTF-8; it stays visible as an escape.
    return lm_eval_json(value).encode("utf-8", "backslashreplace")


def _are_plain(values: Collection[Any]) -> bool:
    """Whether msgspec writes the values as the standard library does."""
    return all(map(_is_plain, [value for value in values if type(value) not in _PLAIN_TYPES]))


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is list or kind is tuple:
        return _are_plain(value)
    return kind in _PLAIN_TYPES or (kind is float and _has_no_exponent(value))


def _has_no_exponent(value: float) -> bool:
    """Whether the standard library writes the number without an exponent, which the libraries write differently."""
    return value == 0 or 1e-4 <= abs(value) < 1e16


_PLAIN_TYPES = frozenset({str, int, bool, type(None)})
_TEXT_ALONE = frozenset({str})


def _arguments(args: tuple[Any, ...]) -> dict[str, Any]:
    return {f"arg_{place}": _argument(argument) for place, argument in enumerate(args)}


def _argument(argument: Any) -> Any:
    if isinstance(argument, ChatPrompt):
        return [msgspec.Raw(argument.quoted)]
    if isinstance(argument, SharedSettings):
        return argument.remembered("samples line", lambda: _encodable(argument))
    return msgspec.Raw(quoted(argument)) if isinstance(argument, str) else _encodable(argument)


def _encodable(value: Any) -> Any:
    """A value that msgspec writes as the standard library does."""
    return value if _is_plain(value) else msgspec.Raw(_json(value))


def _texts(values: Any) -> Any:
    """lm-eval's ``sanitize_list``: everything inside nested lists as a string."""
    if type(values) is list:
        return values if _TEXT_ALONE.issuperset(map(type, values)) else [_texts(value) for value in values]
    from lm_eval.utils import sanitize_list

    return sanitize_list(values)


def _prompt_sha256(prompt: Any) -> bytes:
    return prompt.sha256() if isinstance(prompt, ChatPrompt) else _sha256(prompt.encode("utf-8"))


@functools.lru_cache(maxsize=1024)
def _target_sha256(target: str) -> bytes:
    """Cached, because many tasks have only a few different targets."""
    return _sha256(target.encode("utf-8"))


def _sha256(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _indented(text: bytes, doc: Any) -> bytes:
    """The JSON that lm-eval hashes: ``json.dumps(doc, indent=2)``, whose Python encoder is slow."""
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:  # NaN and infinities, which JSON does not know
        return lm_eval_json(doc, indent=2).encode("utf-8")
