"""Changes of request bodies relative to lm-eval's: fields left out, renamed and added.

Bodies are written as lm-eval's everywhere, and are given their shape as they leave. What answers depend on, the shape
among it, is part of every record's identity.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.types import ModelSpec

_PROMPTS = ("messages", "prompt")
_TOKENS = ("max_tokens", "max_completion_tokens")
_SEVERAL = ("n", "best_of")
_OF_ECHO = (*_TOKENS, *_SEVERAL, "echo", "logprobs", "prompt_logprobs", "stream")
_REASONING_MODELS = ("o1", "o3", "o4", "5")
"""Parts of the names by which lm-eval knows OpenAI's models that take no stop strings, and no temperature but 1."""


class RequestShape(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of every body, in this order."""

    rename: Mapping[str, str] = {}
    drop: Sequence[str] = ()
    extra: Mapping[str, Any] = {}
    """Fields to set, replacing those of the same name."""

    def __bool__(self) -> bool:
        return bool(self.rename or self.drop or self.extra)

    def applied(self, body: bytes) -> bytes:
        """A body (a JSON object) with the changes applied."""
        if not self:
            return body
        fields = {self.rename.get(name, name): value for name, value in json.loads(body).items()}
        for name in self.drop:
            fields.pop(name, None)
        return json.dumps({**fields, **self.extra}).encode("ascii")

    @property
    def identity(self) -> bytes:
        """Bytes that identify the changes; empty if there are none."""
        return msgspec.json.encode(self, order="sorted") if self else b""


def shape_of(spec: ModelSpec) -> RequestShape:
    """The changes of the model's dialect, followed by the user's own."""
    dialect = dialect_shape(spec)
    return RequestShape(
        rename={**dialect.rename, **spec.rename_fields},
        drop=(*dialect.drop, *spec.drop_fields),
        extra={**dialect.extra, **_thinking_budget(spec), **spec.extra_body},
    )


def _thinking_budget(spec: ModelSpec) -> dict[str, int]:
    return {} if spec.thinking_budget is None else {"thinking_token_budget": spec.thinking_budget}


def dialect_shape(spec: ModelSpec) -> RequestShape:
    """The changes of the dialect alone; ``auto`` makes none until a server is seen to need them."""
    if spec.dialect == "mistral":
        return RequestShape(rename={"seed": "random_seed"})
    if spec.dialect not in ("openai", "azure") or spec.endpoint == "completions":
        return RequestShape()
    rename = {"max_tokens": "max_completion_tokens"}
    if any(part in spec.model for part in _REASONING_MODELS):
        return RequestShape(rename=rename, drop=("stop",), extra={"temperature": 1})
    return RequestShape(rename=rename)


def request_settings(spec: ModelSpec) -> dict[str, Any]:
    """What of a model's settings must be equal for scores to be comparable, as plain JSON.

    What a field is called does not count, nor whether the seed is sent: neither says what is asked.
    """
    shape = shape_of(spec)
    settings = {
        "extra_body": dict(shape.extra),
        "drop_fields": sorted({*shape.drop} - {"seed"}),
        "think_end_token": spec.think_end_token,
    }
    return {name: value for name, value in settings.items() if value}


def validate_shape(spec: ModelSpec) -> None:
    """Refuse changes that would drop or replace the prompt.

    Raises:
        SpecificationError: the prompt is left out, renamed or replaced, or an addition is no JSON.
    """
    if spec.thinking_budget is not None:
        _validate_thinking_budget(spec)
    for what, names in (
        ("drop_fields leaves out", spec.drop_fields),
        ("rename_fields renames", spec.rename_fields),
        ("rename_fields replaces", spec.rename_fields.values()),
        ("extra_body replaces", spec.extra_body),
    ):
        if prompt := next((name for name in _PROMPTS if name in names), None):
            raise SpecificationError(f"{what} '{prompt}', which is what is asked")
    if name := next((name for name in _SEVERAL if spec.extra_body.get(name, 1) != 1), None):
        raise SpecificationError(
            f"extra_body asks for several answers at once ('{name}': {spec.extra_body[name]!r}), of which all but one "
            "would be lost; write --repeats"
        )
    try:
        json.dumps(spec.extra_body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise SpecificationError(f"extra_body cannot be sent as JSON: {error}") from None


def _validate_thinking_budget(spec: ModelSpec) -> None:
    if spec.thinking_budget is not None and spec.thinking_budget < 0:
        raise SpecificationError(f"thinking_budget is {spec.thinking_budget}; it is a number of tokens")
    if spec.dialect in ("openai", "azure", "mistral"):
        raise SpecificationError(
            f"the dialect '{spec.dialect}' knows no thinking_budget in tokens; write "
            """--extra-body '{"reasoning_effort": "low"}'"""
        )


def refuse_other_echo(spec: ModelSpec) -> None:
    """Refuse a shape that changes what a request for log-likelihoods asks for.

    Raises:
        SpecificationError: ``extra_body`` sets such a field.
    """
    if name := next((name for name in _OF_ECHO if name in spec.extra_body), None):
        instead = ", or write --max-gen-toks" if name in _TOKENS else ""
        raise SpecificationError(
            f"extra_body sets '{name}', which would change log-likelihoods: run tasks with log-likelihoods without "
            f"it{instead}"
        )


def parse_rename(text: str) -> tuple[str, str]:
    """``OLD=NEW``.

    Raises:
        SpecificationError: the text is something else.
    """
    old, equals, new = (part.strip() for part in text.partition("="))
    if not (old and equals and new):
        raise SpecificationError(f"'{text}' renames no field: write OLD=NEW, as in max_tokens=max_completion_tokens")
    return old, new


def parse_extra_body(text: str) -> dict[str, Any]:
    """A JSON object of fields.

    Raises:
        SpecificationError: the text is something else.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SpecificationError(f"--extra-body cannot be read as JSON ({error}): {text[:200]}") from None
    if not isinstance(value, dict):
        raise SpecificationError(f'--extra-body must be an object, as {{"reasoning_effort": "low"}}, not {text[:200]}')
    return value
