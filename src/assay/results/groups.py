"""Groups in a results document: lm-eval's ``group_subtasks`` names what lies directly in each, tasks and groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def leaves(name: str, members: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks of a group, those of its subgroups too, each once; a task's own name for itself.

    Args:
        name: of a group or task.
        members: by group, what lies directly in it; no group may be in itself, see :func:`own_ancestor`.
    """
    below = members.get(name)
    if not below:
        return [name]
    return list(dict.fromkeys(leaf for member in below for leaf in leaves(member, members)))


def own_ancestor(members: Mapping[str, Sequence[str]]) -> str | None:
    """A group that is among its own groups' members, if there is one."""
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
