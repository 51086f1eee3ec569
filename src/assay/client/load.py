"""Reads servers' load, from their Prometheus gauges or their number of slots."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from assay.client.concurrency import ServerLoad
from assay.client.retry import DOWN_STATUSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.endpoint import Endpoint

_GAUGES = (
    (b"vllm:num_requests_running", b"vllm:num_requests_waiting"),
    (b"llamacpp:requests_processing", b"llamacpp:requests_deferred"),
    (b"sglang:num_running_reqs", b"sglang:num_queue_reqs"),
    (b"tgi_batch_current_size", b"tgi_queue_size"),
)
"""The gauges of running and waiting requests of each server software."""
_MOST = 1e9
"""Larger values of a gauge are cut to this."""
_LINE = re.compile(rb"^([a-z_:]+)(?:\{.*\})?[ \t]+([0-9.eE+]+)(?:[ \t]|\r?$)", re.MULTILINE)


def read_load(metrics: bytes) -> ServerLoad | None:
    """The load on a ``/metrics`` page, summed over the server's engines; None if it has no such gauges.

    Args:
        metrics: the page, in Prometheus's text format.
    """
    found: dict[bytes, float] = {}
    for name, value in _LINE.findall(metrics):
        try:
            found[name] = found.get(name, 0.0) + min(float(value), _MOST)
        except ValueError:
            continue
    for running, waiting in _GAUGES:
        if running in found and waiting in found:
            return ServerLoad(running=round(found[running]), waiting=round(found[waiting]))
    return None


class LoadReader:
    """Reads the load of all servers of a run together.

    Args:
        endpoints: the servers.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._slots: dict[Endpoint, int] = {}
        """For llama.cpp without gauges: how many requests it runs at once."""

    async def read(self, in_flight: int) -> ServerLoad | None:
        """The current load of the servers that reply; None if one of them does not report it.

        Args:
            in_flight: requests that the servers are working on, as far as the client knows.

        Raises:
            OSError: no server replied.
        """
        running = waiting = 0
        silent = []
        for endpoint in self._endpoints:
            if endpoint in self._slots:
                continue
            try:
                load = await _published(endpoint)
                slots = await _slots(endpoint) if load is None else None
            except OSError as error:
                silent.append(error)
                continue
            if load is not None:
                running, waiting = running + load.running, waiting + load.waiting
            elif slots is not None:
                self._slots[endpoint] = slots
            else:
                return None
        if len(silent) == len(self._endpoints):
            raise silent[0]
        if not self._slots:
            return ServerLoad(running, waiting)
        rest, places = max(0, in_flight - running - waiting), sum(self._slots.values())
        return ServerLoad(running + min(rest, places), waiting + max(0, rest - places))


async def _published(endpoint: Endpoint) -> ServerLoad | None:
    return read_load(await _page(endpoint, "/metrics"))


async def _slots(endpoint: Endpoint) -> int | None:
    try:
        slots = msgspec.json.decode(await _page(endpoint, "/props")).get("total_slots")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        return None
    return slots if isinstance(slots, int) and slots > 0 else None


async def _page(endpoint: Endpoint, path: str) -> bytes:
    """A page's content; empty where there is no such page.

    Raises:
        OSError: no reply, or none yet: after a restart a server says so while it loads.
    """
    status, body = await endpoint.get(path)
    if status in DOWN_STATUSES:
        raise ConnectionError(f"{path} is not there yet: HTTP {status}")
    return body if status == 200 else b""
