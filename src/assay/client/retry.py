"""Classifies failed attempts: the cause, whether a retry can help, and how long to wait before it."""

from __future__ import annotations

import enum
import errno
import os
import re
import time
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

import msgspec

from assay.client.rate_limit import seconds_until_allowed
from assay.client.replies import error_body_text
from assay.client.urls import without_secrets
from assay.types import FailureCause

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from assay.client.replies import ReplyError


class Retryability(enum.Enum):
    """Whether a retry can help."""

    NO = "no"
    """The same request would fail the same way."""
    YES = "yes"
    """The server is up; the next attempt may succeed."""
    UNSURE = "unsure"
    """Either this request failed or the whole server is down; a health check decides."""
    SERVER_DOWN = "server_down"
    """No request can succeed before the server is back."""


class Fault(msgspec.Struct, frozen=True):
    """Why one attempt brought no answer."""

    cause: FailureCause
    message: str
    retryability: Retryability
    status: int | None = None
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    is_at_proxy: bool = False
    """Whether the proxy, not the server, could not be reached."""

    def waiting_at_most(self, seconds: float) -> Fault:
        """The same fault, with ``retry_after`` at most so many seconds."""
        if self.retry_after is None or self.retry_after <= seconds:
            return self
        return msgspec.structs.replace(self, retry_after=seconds)


class NetworkError(OSError):
    """A fault below the level of HTTP replies."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


DOWN_STATUSES = frozenset({502, 503, 504})
"""Statuses of a gateway whose server is down, and of a server that is loading."""

NOT_NOW = DOWN_STATUSES | {429, 529}
"""Statuses that mean "not now". A server that answers nothing else counts as an outage."""

REFUSALS = frozenset({301, 302, 303, 307, 308, 401, 402, 403, 404, 405, 407, 410, 421, 426, 501, 505})
"""Statuses of a server that refuses every request because of the key, the account, the model's name or the address."""

_CAUSES = {
    401: FailureCause.UNAUTHORISED,
    402: FailureCause.UNAUTHORISED,
    403: FailureCause.UNAUTHORISED,
    404: FailureCause.NOT_FOUND,
    407: FailureCause.UNAUTHORISED,
    408: FailureCause.TIMED_OUT,
    425: FailureCause.SERVER_ERROR,
    429: FailureCause.RATE_LIMITED,
}
_SECONDS = re.compile(r"[0-9]{1,300}(?:\.[0-9]*)?")
_LONGEST_ASKED = 365 * 86400.0
"""The longest ``Retry-After``, in seconds; longer ones are cut to this."""
_NEVER_PASSING = frozenset({501, 505})

_CONTEXT_TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context_window_exceeded"  # codes of OpenAI, llama.cpp, gateways
    r"|maximum (?:context|model|prompt|input) len"  # OpenAI, vLLM, SGLang
    r"|model's context len"  # SGLang
    r"|(?:available|maximum|max) context (?:size|window)|exceeds? (?:the )?context (?:size|window|length)"  # llama.cpp
    r"|prompt\b.{0,60}\btoo long"  # older vLLM
    r"|`inputs` (?:tokens \+|must have less than)",  # TGI
    re.IGNORECASE | re.DOTALL,
)


def status_fault(status: int, body: bytes, headers: Mapping[str, str], asked: str = "") -> Fault:
    """The fault in a reply whose status is not 2xx.

    Args:
        status: the HTTP status.
        body: as much of the body as was read.
        headers: case-insensitive.
        asked: the address, without secrets; the message names it if the address may be wrong.
    """
    if 300 <= status < 400 and (location := headers.get("Location")):
        target = without_secrets(location)
        whence = f" from {asked}" if asked else ""
        message = (
            f"redirected ({status}){whence} to {target}; requests are not sent on, give the final address as base URL"
        )
        return Fault(FailureCause.BAD_REQUEST, message, Retryability.NO, status)
    said = error_body_text(body[:65536])
    where = f" at {asked}" if asked and status in REFUSALS else ""
    message = f"HTTP {status}{where}: {said}" if said.strip() else f"HTTP {status}{where}"
    cause = _cause(status, body[:65536].decode("utf-8", "replace"), FailureCause.SERVER_ERROR)
    return Fault(cause, message, _retryability(status, cause), status, _retry_after(headers))


def reply_fault(error: ReplyError, asked: str) -> Fault:
    """The fault in a reply of status 200 that is not an answer.

    Args:
        error: what is wrong with it.
        asked: the address, without secrets; the message names it if the address may be wrong.
    """
    if error.status is not None:
        cause = _cause(error.status, str(error), error.cause)
        return Fault(cause, f"error {error.status}: {error}", _retryability(error.status, cause), error.status)
    # A reply that is not of this protocol may mean that the address is wrong.
    where = f"{asked}: " if error.cause is FailureCause.MALFORMED_REPLY else ""
    retryability = Retryability.YES if error.cause.is_transient else Retryability.NO
    return Fault(error.cause, f"{where}{error}", retryability, 200)


def _cause(status: int, said: str, of_server: FailureCause) -> FailureCause:
    """The failure cause of an error status.

    Args:
        status: the HTTP status.
        said: the server's message.
        of_server: the cause to return for an error of the server itself.
    """
    # llama-cpp-python and older llama.cpp send 500 for a prompt that is too long.
    if status in (400, 413, 422, 500) and _CONTEXT_TOO_LONG.search(said):
        return FailureCause.CONTEXT_TOO_LONG
    is_of_request = status < 500 or status in _NEVER_PASSING
    return _CAUSES.get(status, FailureCause.BAD_REQUEST if is_of_request else of_server)


def _retryability(status: int, cause: FailureCause) -> Retryability:
    if not cause.is_transient:
        return Retryability.NO
    if status in DOWN_STATUSES:
        return Retryability.UNSURE
    return Retryability.YES


def proxy_fault(status: int, reason: str) -> Fault:
    """The fault of a proxy that does not connect to the server."""
    retryability = _retryability(status, _cause(status, "", FailureCause.UNREACHABLE))
    if status in DOWN_STATUSES:
        retryability = Retryability.SERVER_DOWN
    message = f"the proxy answered {status} {reason}"
    return Fault(_CAUSES.get(status, FailureCause.UNREACHABLE), message, retryability, status)


def os_reason(error: Exception) -> str:
    """The message of an exception, without Python's decoration."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error) or type(error).__name__
    # asyncio and the resolver fill `strerror` with words of their own; only the resolver's say more than the number.
    return os.strerror(error.errno) if error.errno in errno.errorcode else error.strerror or str(error)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The server's ``Retry-After`` in seconds: a number, or a date measured against the server's own ``Date``."""
    value = headers.get("Retry-After", "").strip()
    if not value:
        return seconds_until_allowed(headers)
    if _SECONDS.fullmatch(value):  # Some send a fraction; the standard has none.
        seconds = float(value)
    else:
        at = _timestamp(value)
        if at is None:
            return None
        # Use the server's own clock if it sends the time: ours may be wrong.
        now = _timestamp(headers.get("Date", ""))
        seconds = at - (time.time() if now is None else now)
    if seconds <= 0:
        return None
    return min(seconds, _LONGEST_ASKED)


def _timestamp(http_date: str) -> float | None:
    try:
        # HTTP's dates are always GMT, whatever they say.
        return parsedate_to_datetime(http_date).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
_FIRST_PATIENT_DELAY = 1.0
_LONGEST_PATIENT_DELAY = 60.0


def is_bad_request(fault: Fault) -> bool:
    """Whether the server objects to the request itself, not to the key or the address."""
    is_of_server = fault.status is None or fault.status in REFUSALS or fault.cause is FailureCause.UNREADABLE_REPLY
    return fault.retryability is Retryability.NO and not is_of_server


def retry_delay(fault: Fault, failures: int, rng: random.Random) -> float:
    """Seconds to wait after the ``failures``-th failed attempt: exponential back-off with full jitter.

    An overloaded server, or a gateway whose server is down, needs longer to recover: after 429, 529, 502, 503 and 504
    the wait is at least half of the (doubled) back-off, so that eight attempts take at least a minute. A
    ``Retry-After`` is waited for in full, plus up to a tenth, so that not all requests come back at once.
    """
    doubling = 2.0 ** min(failures - 1, 16)
    if fault.status in NOT_NOW:
        delay = min(_FIRST_PATIENT_DELAY * doubling, _LONGEST_PATIENT_DELAY) * rng.uniform(0.5, 1.0)
    else:
        delay = min(_FIRST_DELAY * doubling, _LONGEST_DELAY) * rng.random()
    if fault.retry_after is not None:
        delay = max(delay, fault.retry_after * rng.uniform(1.0, 1.1))
    return delay
