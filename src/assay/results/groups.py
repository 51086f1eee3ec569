"""Groups in a results document: lm-eval's ``group_subtasks`` names the direct members of each, tasks and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def leaves(name: str, members: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks of a group and its subgroups, each once; for a task, its own name.

    Args:
        name: a group or task.
        members: by group, its direct members; no group may contain itself, see :func:`own_ancestor`.
    """
    below = members.get(name)
    if not below:
        return [name]
    return list(dict.fromkeys(leaf for member in below for leaf in leaves(member, members)))


def own_ancestor(members: Mapping[str, Sequence[str]]) -> str | None:
    """A group that contains itself, directly or through other groups; None if there is none."""
    for name in members:
        below, seen = list(members[name]), set[str]()
        while below:
            member = below.pop()
            if member == name:
                return name
            if member not in seen:
                seen.add(member)
                below += members.get(member, ())
    return None
