"""Shares a task's generation settings between its requests, to encode them once; lm-eval copies them for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from assay.tasks.protocol import Task

T = TypeVar("T")


class SharedSettings(dict[str, Any]):
    """``generation_kwargs`` that all of a task's requests share, with what was made of them. Not to be changed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._made: dict[Hashable, Any] = {}

    def __deepcopy__(self, _: dict[int, Any]) -> SharedSettings:
        return self

    def remembered(self, use: Hashable, make: Callable[[], T]) -> T:
        """The value that `make` made of these settings when it was first called for this use."""
        if use not in self._made:
            self._made[use] = make()
        made: T = self._made[use]
        return made


def share_generation_settings(task: Task) -> None:
    """Let all requests made from now on share the task's settings as they are, where lm-eval's own code makes them."""
    from lm_eval.api.task import ConfigurableTask

    makes_requests = getattr(task.construct_requests, "__func__", None)
    settings = task.get_config("generation_kwargs")
    if makes_requests is ConfigurableTask.construct_requests and isinstance(settings, dict):
        task.set_config("generation_kwargs", SharedSettings(settings))
