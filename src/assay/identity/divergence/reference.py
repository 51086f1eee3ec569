"""The reference's side of a comparison: its own greedy answers, as it reads them. It can be kept as a file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.storage import write_whole
from assay.errors import FileFormatError
from assay.identity.positions import Position  # noqa: TC001 - msgspec needs it
from assay.types import Failure

if TYPE_CHECKING:
    from pathlib import Path

    from assay.identity.divergence.prompts import NamedPrompt
    from assay.identity.reading import Reader

FORMAT = 1


class ReferenceText(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt, and the reference's answer token by token."""

    name: str
    prompt: str | tuple[dict[str, Any], ...]
    positions: tuple[Position, ...]
    prompt_tokens: int | None = None


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """The reference's answers to all prompts."""

    name: str
    """The model and where it is."""
    way: str
    """How its log-probabilities were known."""
    created: str
    texts: tuple[ReferenceText, ...]
    software: str | None = None
    """What served it, as far as it said."""
    format: int = FORMAT


async def take_text(reader: Reader, prompt: NamedPrompt, tokens: int) -> ReferenceText | Failure:
    """The model's greedy answer to a prompt, read back as one text.

    Args:
        reader: the model.
        prompt: the prompt.
        tokens: the most tokens of the answer.
    """
    generated = await reader.generate(prompt.prompt, tokens)
    if isinstance(generated, Failure):
        return generated
    found = await reader.read(prompt.prompt, generated.positions)
    if isinstance(found, Failure):
        return found
    count = found.prompt_tokens if found.prompt_tokens is not None else generated.prompt_tokens
    return ReferenceText(name=prompt.name, prompt=prompt.prompt, positions=found.positions, prompt_tokens=count)


def reference_of(reader: Reader, texts: tuple[ReferenceText, ...]) -> Reference:
    """The answers as a record of when and from where they are."""
    return Reference(
        name=reader.name,
        way=reader.way,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        texts=texts,
        software=reader.software,
    )


def write_reference(file: Path, reference: Reference) -> Path:
    """Keep a reference as JSON.

    Raises:
        OutputError: it cannot be written.
    """
    return write_whole(file, msgspec.json.encode(reference) + b"\n")


def read_reference(file: Path) -> Reference:
    """Read a file of :func:`write_reference`.

    Raises:
        FileFormatError: there is no such file, or it is no reference, or a newer Assay's.
    """
    try:
        reference = msgspec.json.decode(file.read_bytes(), type=Reference)
    except OSError as error:
        raise FileFormatError(f"cannot read the reference {file}: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise FileFormatError(
            f"{file} is no reference: {error}; 'assay diverge --save-reference FILE' makes one"
        ) from None
    if reference.format > FORMAT:
        raise FileFormatError(f"{file} has format {reference.format}, of a newer Assay; this one knows {FORMAT}")
    if not any(text.positions for text in reference.texts):
        raise FileFormatError(f"{file} holds no answer; 'assay diverge --save-reference FILE' makes one anew")
    return reference
