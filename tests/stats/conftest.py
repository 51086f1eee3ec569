"""Settings of the statistics' property tests."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says nothing about the statistics, only about how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
