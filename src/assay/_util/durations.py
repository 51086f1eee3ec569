"""Times in words."""

_TOLD_WITH_TENTHS = 9.95
"""Seconds; longer times are rounded to seconds."""

_HOURS_TOLD = 72
"""Longer times are told in days."""


def duration_words(seconds: float) -> str:
    """A time in seconds, in minutes and seconds, in hours and minutes, or in days."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _HOURS_TOLD:
        return f"{round(hours / 24)} days"
    parts = ((hours, "h"), (minutes, "min")) if hours else ((minutes, "min"), (rest, "s"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count) or "0 s"


def rate_words(requests: int, seconds: float) -> str:
    """How fast answers come: how many in a second, or where that is less than one, how long each takes.

    Args:
        requests: at least one.
        seconds: in which they were answered; more than 0.
    """
    each = seconds / requests
    if each <= 1:
        return f"{1 / each:.1f} requests/s"
    return f"one request every {f'{each:.1f} s' if each < _TOLD_WITH_TENTHS else duration_words(each)}"
