"""The reference page on a gate's TOML has every key of a policy, with its type and its default."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest

from assay.gate.policy import CheckEntry, IdentityEntry, Policy
from assay.types import TLS, Budget, LocalOptions, ModelSpec, TaskOptions

PAGE = Path(__file__).parents[2] / "docs" / "gate-toml.md"
TABLES: dict[str, type[msgspec.Struct]] = {
    "Top level": Policy,
    "`[budget]`": Budget,
    "`[options]`": TaskOptions,
    "`[models.NAME]`": ModelSpec,
    "`[models.NAME.tls]`": TLS,
    "`[[checks]]`": CheckEntry,
    "`[[identity]]`": IdentityEntry,
}
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "anything"}


def type_in_words(kind: Any) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in WORDS:
        return WORDS[kind]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "table"
    if origin is Literal:
        return ", ".join(f'`"{choice}"`' for choice in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(type_in_words(each) for each in arguments if each is not type(None))
    if origin is dict:
        held = arguments[1]
        return (
            "table" if held is Any else "tables" if type_in_words(held) == "table" else f"table: {type_in_words(held)}"
        )
    assert origin is tuple
    if arguments[-1] is Ellipsis:
        return "tables" if type_in_words(arguments[0]) == "table" else f"list: {type_in_words(arguments[0])}"
    return f"list of {len(arguments)}: {type_in_words(arguments[0])}"


def default_in_words(field: Any) -> str:
    if field.required:
        return "required"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if default is None or isinstance(default, msgspec.Struct) or default in ((), {}):
        return "none"
    return f"`{json.dumps(default)}`"  # JSON's text, numbers, true and false are TOML's


def rows_of(struct: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    hints = typing.get_type_hints(struct)
    return [
        (field.name, type_in_words(hints[field.name]), default_in_words(field))
        for field in msgspec.structs.fields(struct)
    ]


def rows_on_page(heading: str) -> list[tuple[str, ...]]:
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert all(len(row) == 4 and row[3] for row in rows)
    return [(row[0].strip("`"), row[1], row[2]) for row in rows]


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_is_on_the_page_with_its_type_and_default(heading: str) -> None:
    assert rows_on_page(heading) == rows_of(TABLES[heading])


def test_every_table_of_a_policy_is_on_the_page() -> None:
    found: set[type[msgspec.Struct]] = set()
    unread: list[type[msgspec.Struct]] = [Policy]
    while unread:
        struct = unread.pop()
        found.add(struct)
        info = msgspec.inspect.type_info(struct)
        unread += [kind for kind in _structs_in(info) if kind not in found]
    assert found == {*TABLES.values(), LocalOptions}  # which a gate refuses


def _structs_in(info: Any) -> set[type[msgspec.Struct]]:
    found: set[type[msgspec.Struct]] = set()
    for field in info.fields:
        parts = [field.type]
        while parts:
            part = parts.pop()
            if isinstance(part, msgspec.inspect.StructType):
                found.add(part.cls)
            parts += [getattr(part, name) for name in ("item_type", "value_type") if hasattr(part, name)]
            parts += getattr(part, "types", ())
    return found
