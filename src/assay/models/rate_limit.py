"""No more requests and tokens a minute than the provider allows, over all endpoints together.

Requests leave evenly spaced, so that no minute holds more of them than are allowed, wherever it begins. A request's
tokens are known only once it is answered: it is let go with as many as the answers before it took on average, and what
it took more or less moves the next one.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_KINDS = ("requests", "tokens")
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?", re.ASCII)
_SECONDS = re.compile(r"\d+(?:\.\d*)?", re.ASCII)
_LONGEST = 365 * 86400.0
"""Seconds; what is more is a time since 1970, or none at all."""
_LONGEST_TEXT = 64
_NEWS = 30.0
"""Seconds; shorter waits are not worth a line, of which there may be one a minute."""
_UNITS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_MINUTE = 60.0
_LETTERS_PER_TOKEN = 4
_TOKENS_OF_FIRST_ANSWER = 256


class RateLimit:
    """Lets requests go at the pace that is allowed.

    Args:
        requests: a minute; None for any number.
        tokens: of prompts and answers a minute; None for any number.
        wait: sleeps for so many seconds.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        requests: float | None,
        tokens: float | None,
        *,
        wait: Callable[[float], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds_per_request = _MINUTE / requests if requests else 0.0
        self._seconds_per_token = _MINUTE / tokens if tokens else 0.0
        self._wait = wait
        self._clock = clock
        self._next_request = self._next_tokens = clock()
        self._answers = 0
        self._tokens = 0
        self.is_set = requests is not None or tokens is not None

    async def admit(self, payload: bytes) -> float:
        """Wait until a request may leave.

        Args:
            payload: its body, by which its tokens are estimated as long as nothing has been answered.

        Returns:
            The tokens that it counts with for now; for :meth:`answered`.
        """
        estimate = self._estimate(payload) if self._seconds_per_token else 0.0
        now = self._clock()
        at = max(now, self._next_request, self._next_tokens)
        self._next_request = at + self._seconds_per_request
        self._next_tokens = max(now, self._next_tokens) + estimate * self._seconds_per_token
        if at > now:
            await self._wait(at - now)
        return estimate

    def exhausted(self, seconds: float) -> bool:
        """Let nothing go for so long: the provider says that what it allows is used up until then.

        Returns:
            Whether it was not known before that it takes so long, which somebody may want to be told.
        """
        until = self._clock() + seconds
        is_news = until > max(self._next_request, self._clock()) + _NEWS
        self._next_request = max(self._next_request, until)
        self.is_set = True
        return is_news

    def answered(self, estimate: float, tokens: int | None) -> None:
        """Count what a request took in place of its estimate; nothing changes where the server does not say."""
        if tokens is None or not self._seconds_per_token:
            return
        self._answers += 1
        self._tokens += tokens
        self._next_tokens += (tokens - estimate) * self._seconds_per_token

    def _estimate(self, payload: bytes) -> float:
        if self._answers:
            return self._tokens / self._answers
        return len(payload) / _LETTERS_PER_TOKEN + _TOKENS_OF_FIRST_ANSWER


def seconds_until_allowed(headers: Mapping[str, str]) -> float | None:
    """How long nothing more is allowed, by ``x-ratelimit-remaining-…`` and ``x-ratelimit-reset-…``, as OpenAI has them.

    Args:
        headers: case-insensitive.

    Returns:
        Seconds; None where something is left, or nothing is said.
    """
    used_up = [kind for kind in _KINDS if headers.get(f"x-ratelimit-remaining-{kind}", "").strip() == "0"]
    waits = [_seconds(headers.get(f"x-ratelimit-reset-{kind}", "")) for kind in used_up]
    return max((wait for wait in waits if wait is not None), default=None)


def _seconds(text: str) -> float | None:
    """``6m0s``, ``120ms`` or ``1.5``."""
    text = text.strip()[:_LONGEST_TEXT]
    if _SECONDS.fullmatch(text):
        seconds = float(text)
    elif text and (found := _DURATION.fullmatch(text)):
        seconds = sum(float(part) * unit for part, unit in zip(found.groups(), _UNITS, strict=True) if part)
    else:
        return None
    return seconds if seconds <= _LONGEST else None
