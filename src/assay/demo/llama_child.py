"""What the demo's child process runs: llama.cpp's own HTTP server, until its parent is gone.

    python -m assay.demo.llama_child GGUF_FILE MODEL_NAME SLOTS PORT CHAT_TEMPLATE

The first and only line on stdout is the server's address, written once the model is loaded.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import NoReturn

_TOKENS_PER_SLOT = 2048
_MOST_THREADS = 8
"""More threads slow a model of this size down."""


def main(model_file: str, model_name: str, slots: int, port: int, template: str) -> NoReturn:
    """Serve the model on 127.0.0.1 until stdin is closed.

    Args:
        model_file: a GGUF file.
        model_name: the name under which it is served.
        slots: requests that are answered at once.
        port: 0 for a free one.
        template: a chat template in place of the model's own; empty for that.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    to_parent = _reserve_stdout()

    from xllamacpp import CommonParams, Server

    parameters = CommonParams()
    parameters.model.path = model_file
    parameters.model_alias = {model_name}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    if template:
        parameters.chat_template = template
        parameters.use_jinja = True
    parameters.n_parallel = slots
    parameters.n_ctx = slots * _TOKENS_PER_SLOT
    parameters.kv_unified = False
    # Slots keep their own prompt's cache; a second one for prompts that left a slot would take gigabytes.
    parameters.cache_ram_mib = 0
    threads = min(
        _MOST_THREADS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads

    server = Server(parameters)
    os.write(to_parent, f"{server.listening_address}\n".encode())
    while True:
        threading.Event().wait()


def _end_with_parent() -> NoReturn:
    """Wait for the end of stdin, which comes when the parent closes it or dies; then exit at once."""
    sys.stdin.buffer.read()
    os._exit(0)


def _reserve_stdout() -> int:
    """Keep stdout for the address alone; whatever llama.cpp prints there goes to stderr.

    Returns:
        A file descriptor of the parent's end.
    """
    to_parent = os.dup(1)
    os.dup2(2, 1)
    return to_parent


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
