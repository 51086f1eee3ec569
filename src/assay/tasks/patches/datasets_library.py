"""How Assay uses the datasets library: with its own way of finding data, quietly, and without waiting for the hub."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import socket
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATIENCE = 3.0
"""Seconds that the hub has to accept a connection."""


def hub_is_reachable() -> bool:
    """Return whether the hub may be asked and accepts a connection.

    ``HF_HUB_OFFLINE`` and ``HF_DATASETS_OFFLINE`` forbid asking. The hub's libraries themselves retry for minutes.
    """
    from datasets import config

    return not config.HF_HUB_OFFLINE and _accepts_connection(config.HF_ENDPOINT)


@functools.cache
def _accepts_connection(endpoint: str) -> bool:
    target = urlsplit(endpoint)
    host = target.hostname or ""
    proxy = None if proxy_bypass(host) else getproxies().get(target.scheme)
    if proxy is not None:
        target = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        host = target.hostname or ""
    port = target.port or {"http": 80}.get(target.scheme, 443)
    reached = threading.Event()

    def connect() -> None:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=_PATIENCE):
            reached.set()

    # In a thread, because looking up a name has no time-out of its own.
    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(_PATIENCE)
    return reached.is_set()


@contextlib.contextmanager
def loading_replaced(replacement: Callable[..., Any]) -> Iterator[None]:
    """Let `replacement` stand in for ``datasets.load_dataset``, whose first argument is then that function itself.

    Where the library is not imported yet, it finds the stand-in when it is.
    """
    import datasets

    is_imported = "datasets.load" in sys.modules
    original = datasets.load_dataset if is_imported else None

    def load_dataset(*args: Any, **options: Any) -> Any:
        return replacement(original or importlib.import_module("datasets.load").load_dataset, *args, **options)

    datasets.load_dataset = load_dataset
    try:
        yield
    finally:
        if is_imported:
            datasets.load_dataset = original
        elif "datasets.load" in sys.modules:
            datasets.load_dataset = importlib.import_module("datasets.load").load_dataset


@contextlib.contextmanager
def quiet_datasets() -> Iterator[None]:
    """Show no progress bars and no messages of the datasets library and the hub's client."""
    import datasets
    from huggingface_hub import utils as hub_utils

    with _quiet(datasets.utils), _quiet(hub_utils):
        yield


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Quieten one of the two libraries; both offer the same switches."""
    bars_disabled = library.are_progress_bars_disabled()
    verbosity = library.logging.get_verbosity()
    library.disable_progress_bars()
    # Even its errors: what it logs as one, it also raises.
    library.logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        library.logging.set_verbosity(verbosity)
        if not bars_disabled:
            library.enable_progress_bars()


@contextlib.contextmanager
def no_streaming_of_matlab_files() -> Iterator[None]:
    """Keep the library from importing SciPy's reader of MATLAB files for each kind of file that it can stream.

    The import takes a tenth of a second or two, and nothing is streamed here.
    """
    from datasets import builder

    prepare = builder.extend_dataset_builder_for_streaming

    def prepare_without_scipy(made: Any) -> None:
        if "scipy" in sys.modules:
            prepare(made)
            return
        sys.modules["scipy"] = None  # type: ignore[assignment]  # as if it were not installed
        try:
            prepare(made)
        finally:
            del sys.modules["scipy"]

    builder.extend_dataset_builder_for_streaming = prepare_without_scipy
    try:
        yield
    finally:
        builder.extend_dataset_builder_for_streaming = prepare


@contextlib.contextmanager
def descriptions_read_once() -> Iterator[None]:
    """Read each data set's README once, not once a config: MMLU's takes 50 ms, and MMLU has 57 configs."""
    from datasets import load

    read_description = load.dataset_module_factory
    known: dict[str, Any] = {}

    def remembered(path: str, **options: Any) -> Any:
        key = repr((path, sorted(options.items())))
        if key not in known:
            known[key] = read_description(path, **options)
        # The library empties this dictionary as it uses it.
        return replace(known[key], builder_kwargs=dict(known[key].builder_kwargs))

    load.dataset_module_factory = remembered
    try:
        yield
    finally:
        load.dataset_module_factory = read_description
