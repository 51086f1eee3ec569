import asyncio
import socket
import threading
from typing import Any

import pytest

from assay.client.openai import OpenAIModel
from assay.client.server_info import ServedModel, ServerInfo, check_model_served
from assay.errors import ModelNotServedError, ServerUnreachableError
from assay.types import ModelSpec
from tests.client.clocks import PATIENT, FastTime
from tests.servers.scripted import ScriptedServer


def info_of(url: str, wait: float = 0.0, api_key: str | None = None) -> ServerInfo:
    async def run_preflight() -> ServerInfo:
        time = FastTime(100)
        spec = ModelSpec(base_url=url, model="m")
        async with OpenAIModel(spec, api_key=api_key, clock=time.clock, sleep=time.sleep) as model:
            return await model.server_info(wait=wait)

    return asyncio.run(run_preflight())


def test_a_server_lists_its_models() -> None:
    with ScriptedServer(models=[("a", 4096), "b"]) as server:
        expected = ServerInfo(url=server.url, models=(ServedModel("a", 4096), ServedModel("b")))
        assert info_of(server.url) == expected
        assert info_of(f"{server.url}/v1/chat/completions") == expected
        assert server.count == 0


def test_what_llama_cpp_says() -> None:
    entry = {"id": "m.gguf", "aliases": ["m"], "owned_by": "llamacpp", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}
    with ScriptedServer(model_list={"object": "list", "data": [entry]}) as server:
        assert info_of(server.url).models == (ServedModel("m.gguf", 2048, "llamacpp", ("m",)),)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 500])
def test_a_server_that_lists_nothing_is_met_all_the_same(status: int) -> None:
    with ScriptedServer() as server:
        server.refuse_lookups = status
        assert info_of(server.url).models == ()


@pytest.mark.parametrize("listing", [[], {}, {"data": None}, {"data": ["a", {"id": 4}, {}]}, "models", None, 4])
def test_odd_lists_are_empty_ones(listing: Any) -> None:
    with ScriptedServer(model_list=listing) as server:
        assert info_of(server.url).models == ()


def test_a_bare_list_will_do() -> None:
    with ScriptedServer(model_list=[{"id": "a", "max_model_len": "long", "aliases": "x", "owned_by": 4}]) as server:
        assert info_of(server.url).models == (ServedModel("a"),)


def test_a_look_up_that_meets_a_connection_just_closed_is_sent_again() -> None:
    with ScriptedServer(models=["a"]) as server:
        server.lookups_reset = frozenset({0})
        assert info_of(server.url).models == (ServedModel("a"),)


def test_nothing_there_is_said_in_one_line() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with pytest.raises(ServerUnreachableError) as caught:
        info_of(url)
    assert str(caught.value) == f"nothing answers at {url} (no connection: Connection refused); is the server running?"


def test_an_unknown_host_is_said_in_one_line() -> None:
    with pytest.raises(ServerUnreachableError, match=r"nothing answers at http://host\.invalid \(no connection: .+\)"):
        info_of("http://host.invalid")


def test_loading_is_not_being_there() -> None:
    with ScriptedServer() as server:
        server.outage = "loading"
        with pytest.raises(ServerUnreachableError, match=r"not ready \(HTTP 503: Loading model\)"):
            info_of(server.url)


def test_a_server_that_comes_up_is_waited_for() -> None:
    """Refused for 30 s, then loading for 30 s (at 100-fold speed)."""
    with ScriptedServer() as server:
        server.outage = "loading"
        restart = server.restart_after(0.3)
        loaded = threading.Timer(0.6, setattr, (server, "outage", None))
        loaded.start()
        assert info_of(server.url, wait=PATIENT).models
        restart.join()
        loaded.join()


def test_the_wait_ends() -> None:
    with ScriptedServer() as server:
        server.outage = "loading"
        with pytest.raises(ServerUnreachableError, match="not ready"):
            info_of(server.url, wait=10)


def served(*models: str | ServedModel) -> ServerInfo:
    entries = tuple(model if isinstance(model, ServedModel) else ServedModel(model) for model in models)
    return ServerInfo(url="http://host", models=entries)


@pytest.mark.parametrize(
    "info",
    [
        served(),
        served("other", "org/model"),
        served("org/model@main"),
        served("org/model:latest"),
        served(ServedModel("x.gguf", aliases=("org/model",))),
        served(ServedModel("x.gguf", owned_by="llamacpp")),
    ],
)
def test_a_model_is_served_under_its_name_or_what_servers_make_of_it(info: ServerInfo) -> None:
    check_model_served(info, "org/model")


def test_a_model_that_is_not_served_is_refused_with_the_nearest_names_first() -> None:
    names = [f"other-{n}" for n in range(8)]
    with pytest.raises(ModelNotServedError) as caught:
        check_model_served(served(*names, "Qwen/Qwen3-8B"), "qwen/qwen3-8b")
    assert str(caught.value) == (
        "http://host does not serve 'qwen/qwen3-8b'; it serves 'Qwen/Qwen3-8B', 'other-0', 'other-1', 'other-2', "
        "'other-3' and 4 more"
    )


def test_llama_cpp_with_several_models_wants_the_right_name() -> None:
    several = served(ServedModel("a", owned_by="llamacpp"), ServedModel("b", owned_by="llamacpp"))
    with pytest.raises(ModelNotServedError):
        check_model_served(several, "c")
