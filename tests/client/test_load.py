"""Servers' gauges, as they publish them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from assay.client.concurrency import ServerLoad
from assay.client.load import LoadReader, read_load

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-8B"} 200.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-8B"} 56.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-8B"} 3.0
vllm:num_requests_waiting{engine="1",model_name="a b{c}"} 1.2e+01
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 9.0
"""
LLAMACPP = b"""# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 4
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 12
"""


@pytest.mark.parametrize(
    ("page", "load"),
    [
        (VLLM, ServerLoad(256, 15)),
        (LLAMACPP, ServerLoad(4, 12)),
        (LLAMACPP.replace(b"\n", b"\r\n"), ServerLoad(4, 12)),
        (b'sglang:num_running_reqs{tp_rank="0"} 7.0\nsglang:num_queue_reqs{tp_rank="0"} 2.0 1700000000\n', (7, 2)),
        (b"tgi_queue_size 3\ntgi_batch_current_size 8\n", (8, 3)),
        (b"vllm:num_requests_running 3\n", None),
        (b"vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n", None),
        (b"vllm:num_requests_running ..\nvllm:num_requests_waiting 1\n", None),
        (b"vllm:num_requests_running 1e999\nvllm:num_requests_waiting 1e300\n", (10**9, 10**9)),
        (b"<html>not found</html>", None),
        (b"", None),
    ],
)
def test_the_gauges_of_servers(page: bytes, load: ServerLoad | None) -> None:
    assert read_load(page) == load


class Endpoint:
    """Serves pages."""

    def __init__(self, **pages: bytes) -> None:
        self.pages = pages
        self.asked: list[str] = []

    async def get(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        page = self.pages.get(path.strip("/"))
        if page == b"gone":
            raise ConnectionResetError
        if page == b"loading":
            return 503, b'{"error": {"message": "Loading model"}}'
        return (404, b"{}") if page is None else (200, page)


def read(*endpoints: Any, in_flight: int = 0) -> ServerLoad | None:
    return asyncio.run(LoadReader(endpoints).read(in_flight))


def test_the_loads_of_several_servers_are_summed() -> None:
    assert read(Endpoint(metrics=LLAMACPP), Endpoint(metrics=VLLM)) == ServerLoad(260, 27)


def test_a_server_that_does_not_tell_leaves_the_sum_unknown() -> None:
    assert read(Endpoint(metrics=LLAMACPP), Endpoint()) is None
    assert read(Endpoint(metrics=b"other 1\n", props=b'{"total_slots": "many"}')) is None
    assert read(Endpoint(props=b"[]")) is None


@pytest.mark.parametrize("pages", [{"metrics": b"gone"}, {"metrics": b"loading"}, {"props": b"loading"}])
def test_a_server_that_does_not_answer_may_tell_later(pages: dict[str, bytes]) -> None:
    """Also one that was started again and still loads: llama.cpp has a 503 for every page until it is ready."""
    with pytest.raises(ConnectionError):
        read(Endpoint(**pages))
    assert read(Endpoint(**pages), Endpoint(metrics=LLAMACPP)) == ServerLoad(4, 12)


def test_llamacpp_without_gauges_tells_its_slots_and_is_asked_once() -> None:
    endpoint = Endpoint(props=b'{"total_slots": 4}')
    reader = LoadReader([endpoint])  # type: ignore[list-item]
    assert asyncio.run(reader.read(16)) == ServerLoad(4, 12)
    assert asyncio.run(reader.read(3)) == ServerLoad(3, 0)
    assert endpoint.asked == ["/metrics", "/props"]


def test_slots_and_gauges_together() -> None:
    assert read(Endpoint(props=b'{"total_slots": 4}'), Endpoint(metrics=LLAMACPP), in_flight=30) == ServerLoad(8, 22)
