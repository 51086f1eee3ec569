"""Where answers come from: clients of OpenAI-compatible servers, and what is found out about those servers.

Everything that sends a request or reads a reply belongs here, and nothing that knows a task. It may import ``types``
and ``_util``.
"""
