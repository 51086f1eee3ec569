"""Caches compiled Jinja templates.

lm-eval compiles a task's template anew for every document and few-shot example, which is most of the time that building
prompts takes.
"""

from __future__ import annotations

import functools
from typing import Any

_KEPT = 512
"""The most templates kept. A task has a handful; the bound is for tasks that make a template of each document."""

_MARKS = ("{{", "{%", "{#")


def cache_compiled_templates() -> None:
    """Let lm-eval's template environment compile each template text once. Doing it again changes nothing."""
    from lm_eval.utils import env

    if isinstance(env.from_string, _CompileOnce):
        return
    env.from_string = _CompileOnce(env.from_string)


class _CompileOnce:
    """Stands in for ``Environment.from_string``."""

    def __init__(self, from_string: Any) -> None:
        self._from_string = from_string
        self._kept = functools.lru_cache(maxsize=_KEPT)(self._compile)

    def __call__(self, source: Any, *args: Any, **options: Any) -> Any:
        if args or options or not isinstance(source, str):
            return self._from_string(source, *args, **options)
        return self._kept(source)

    def _compile(self, source: str) -> Any:
        template = self._from_string(source)
        if not any(mark in source for mark in _MARKS):
            return _Constant(template.render())
        # Every rendering copies the globals, by way of a ChainMap that takes longer than most templates.
        template.globals = dict(template.globals)
        return template


class _Constant:
    """A template without variables."""

    def __init__(self, text: str) -> None:
        self._text = text

    def render(self, *_: Any, **__: Any) -> str:
        return self._text
