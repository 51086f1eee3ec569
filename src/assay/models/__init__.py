"""Clients of OpenAI-compatible servers, and what Assay finds out about those servers.

Code that sends a request or reads a reply belongs here; code that knows a task does not. It may import ``types`` and
``_util``.
"""
