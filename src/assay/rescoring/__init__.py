"""Scores a finished run's answers again: they are read from its journal, without a server.

The package may import ``runs``, ``scoring``, ``results`` and what stands below them.
"""
