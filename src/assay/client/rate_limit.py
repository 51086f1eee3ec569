"""Limits requests and tokens a minute to what the provider allows, over all endpoints together.

Requests are evenly spaced, so that no period of a minute holds more of them than allowed. A request's tokens are known
only when it is answered: until then it counts with the mean of earlier answers, and the difference moves the next one.
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
"""Seconds; a larger number is a Unix time or nonsense."""
_LONGEST_TEXT = 64
_NEWS = 30.0
"""Seconds; shorter waits are not reported, since there may be one every minute."""
_UNITS = (86400.0, 3600.0, 60.0, 1.0, 0.001)
_MINUTE = 60.0
_LETTERS_PER_TOKEN = 4
_TOKENS_OF_FIRST_ANSWER = 256


class RateLimit:
    """Delays requests to stay within the limits.

    Args:
        requests: requests a minute; None for no limit.
        tokens: tokens of prompts and answers a minute; None for no limit.
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
        """Wait until a request may be sent.

        Args:
            payload: the request's body; its length gives an estimate of tokens until something has been answered.

        Returns:
            The estimated tokens, for :meth:`answered`.
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
        """Send nothing for so many seconds: the provider's quota is used up.

        Returns:
            Whether this is worth reporting: the wait is clearly longer than known before.
        """
        until = self._clock() + seconds
        is_news = until > max(self._next_request, self._clock()) + _NEWS
        self._next_request = max(self._next_request, until)
        self.is_set = True
        return is_news

    def answered(self, estimate: float, tokens: int | None) -> None:
        """Replace a request's estimate by its actual tokens; does nothing if the server does not report them."""
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
    """Seconds until more is allowed, by OpenAI's headers ``x-ratelimit-remaining-…`` and ``x-ratelimit-reset-…``.

    Args:
        headers: case-insensitive.

    Returns:
        Seconds; None if something is left, or the headers are missing.
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
