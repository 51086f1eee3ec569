"""A task's generation settings are the same for every document; lm-eval copies them, and each copy is encoded anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class SharedSettings(dict[str, Any]):
    """``generation_kwargs`` that all of a task's requests share, with what was made of them. Not to be changed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._made: dict[Hashable, bytes] = {}

    def __deepcopy__(self, _: dict[int, Any]) -> SharedSettings:
        return self

    def remembered(self, use: Hashable, make: Callable[[], bytes]) -> bytes:
        """What `make` made of these settings when it was first asked to for this use."""
        made = self._made.get(use)
        if made is None:
            made = self._made[use] = make()
        return made


def share_generation_settings(task: Any) -> None:
    """Let all requests made from now on share the task's settings as they are, where lm-eval's own code makes them."""
    from lm_eval.api.task import ConfigurableTask

    makes_requests = getattr(task.construct_requests, "__func__", None)
    settings = task.get_config("generation_kwargs")
    if makes_requests is ConfigurableTask.construct_requests and isinstance(settings, dict):
        task.set_config("generation_kwargs", SharedSettings(settings))
