"""The prompts on which two models are compared: a file's, a run's, or Assay's own."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from assay.errors import FileFormatError, SpecificationError, UnsupportedTaskError
from assay.identity.prompts import PROMPTS
from assay.runs.sample_choice import SampleChoice, read_samples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.types import EndpointKind

Messages = tuple[dict[str, Any], ...]


class NamedPrompt(NamedTuple):
    """A prompt and how reports name it."""

    name: str
    prompt: str | Messages


_line_decoder = msgspec.json.Decoder(str | Messages)


def own_prompts(count: int, endpoint: EndpointKind) -> list[NamedPrompt]:
    """The first of Assay's own prompts."""
    texts = PROMPTS[:count]
    return [NamedPrompt(text, _as_asked(text, endpoint)) for text in texts]


def prompts_of_file(file: Path, count: int, endpoint: EndpointKind) -> list[NamedPrompt]:
    """The first prompts of a file: one a line, as JSON (a string, or a chat's messages) or as plain text.

    Raises:
        FileFormatError: the file cannot be read, or is empty.
        UnsupportedTaskError: it holds chats, and the completions endpoint is asked.
    """
    try:
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"cannot read the prompts {file}: {error}") from None
    if not lines:
        raise FileFormatError(f"{file} holds no prompt: write one a line")
    return [
        NamedPrompt(f"line {number}", _as_asked(_prompt_of(line), endpoint))
        for number, line in enumerate(lines[:count], 1)
    ]


def prompts_of_run(
    run: str, choice: SampleChoice, count: int, endpoint: EndpointKind, baseline: str | None
) -> list[NamedPrompt]:
    """The first prompts of a finished run's samples.

    Args:
        run: as for :func:`assay.runs.sample_choice.read_samples`.
        choice: which samples.
        count: how many.
        endpoint: the one that is asked.
        baseline: an earlier run, for samples that flipped.

    Raises:
        SpecificationError: no sample of the run is chosen.
        UnsupportedTaskError: the prompts are chats, and the completions endpoint is asked, or the other way about.
        UsageError, FileFormatError: as ``read_samples``.
    """
    samples = read_samples(run, choice, baseline=baseline)
    found = list(islice(_of_samples(samples), count))
    if not found:
        raise SpecificationError(f"no sample of {run} that is asked for has a prompt")
    is_chat = not isinstance(found[0].prompt, str)
    if is_chat is not (endpoint == "chat"):
        other = "leave out --completions" if is_chat else "add --completions"
        raise UnsupportedTaskError(f"{run} was asked by {'chat' if is_chat else 'completions'}; {other}")
    return found


def _of_samples(samples: Iterator[Any]) -> Iterator[NamedPrompt]:
    for sample, _ in samples:
        for prompt in sample.prompts[:1]:
            content = prompt.content
            turns = content if isinstance(content, str) else tuple(msgspec.to_builtins(each) for each in content)
            yield NamedPrompt(f"{sample.task} {sample.doc_id}", turns)


def _prompt_of(line: str) -> str | Messages:
    try:
        return _line_decoder.decode(line)
    except msgspec.DecodeError:
        return line


def _as_asked(prompt: str | Messages, endpoint: EndpointKind) -> str | Messages:
    if endpoint == "chat":
        return ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
    if not isinstance(prompt, str):
        raise UnsupportedTaskError("a prompt is a chat, which completions do not take; leave out --completions")
    return prompt
