"""The client of OpenAI-compatible servers, and what Assay finds out about those servers.

A request: ``openai`` answers it, ``servers`` chooses the server, ``endpoint`` makes an attempt, ``headers`` and
``request_shape`` say what is sent, ``http1`` sends it. A reply: ``replies`` parses it, ``streamed_answers`` while it
arrives; ``completions`` and ``logprobs`` read what HELM and log-likelihoods need. A failure: ``retry`` classifies it,
``health`` knows whether the server is down, ``giving_up`` ends the run. How fast: ``concurrency``, ``rate_limit``.
Before the run: ``preflight``, ``server_info``, ``probe``.

Code that sends a request or reads a reply belongs here; code that knows a task does not. It may import ``types`` and
``_util``.
"""
