"""Durations and rates, formatted for people."""

_SHOWN_WITH_TENTHS = 9.95
"""Seconds; longer times are rounded to seconds."""

_MOST_HOURS_SHOWN = 72
"""Longer times are shown in days."""


def format_duration(seconds: float) -> str:
    """A duration such as ``40 s``, ``3 min 20 s``, ``2 h 5 min`` or ``4 days``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _MOST_HOURS_SHOWN:
        return f"{round(hours / 24)} days"
    parts = ((hours, "h"), (minutes, "min")) if hours else ((minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def format_rate(requests: int, seconds: float) -> str:
    """A rate such as ``2.5 requests/s``, or ``one request every 8.0 s`` if it is less than one a second.

    Args:
        requests: how many were answered; at least one.
        seconds: the time that took; more than 0.
    """
    each = seconds / requests
    if each <= 1:
        return f"{1 / each:.1f} requests/s"
    return f"one request every {f'{each:.1f} s' if each < _SHOWN_WITH_TENTHS else format_duration(each)}"
