"""A finished run's answers, read from its journal and scored again without a server.

It may import ``runs``, ``scoring``, ``results`` and what stands below them.
"""
