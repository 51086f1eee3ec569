"""The client's tests run over both transports, though of its own accord it takes aiohttp only for TLS and proxies."""

import ssl
from collections.abc import Mapping

import pytest
import yarl

from assay.models.aiohttp_transport import AiohttpTransport
from assay.models.transport import Transport, open_transport

OVER_BOTH = ("test_openai", "test_server_info")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in OVER_BOTH:
        metafunc.fixturenames.append("transport_of_the_client")
        metafunc.parametrize("transport_of_the_client", ["by scheme", "aiohttp"], indirect=True)


@pytest.fixture
def transport_of_the_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def over_aiohttp(
        _: yarl.URL, headers: Mapping[str, str], proxy: yarl.URL | None, context: ssl.SSLContext
    ) -> Transport:
        return AiohttpTransport(headers, context, proxy)

    made = open_transport if request.param == "by scheme" else over_aiohttp
    monkeypatch.setattr("assay.models.endpoint.open_transport", made)
