"""The client's tests run over plain HTTP and over TLS."""

import ssl
from pathlib import Path

import pytest
import trustme

from tests.servers.scripted import ScriptedServer

OVER_BOTH = ("test_openai", "test_server_info")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in OVER_BOTH:
        metafunc.fixturenames.append("scripted_servers_speak")
        metafunc.parametrize("scripted_servers_speak", ["http", "https"], indirect=True)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def authority_file(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> str:
    file: Path = tmp_path_factory.mktemp("authority") / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    return str(file)


@pytest.fixture(scope="session")
def local_server(authority: trustme.CA) -> ssl.SSLContext:
    """What a server at 127.0.0.1 needs to speak TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def scripted_servers_speak(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, authority_file: str, local_server: ssl.SSLContext
) -> None:
    if request.param == "https":
        monkeypatch.setenv("SSL_CERT_FILE", authority_file)
        monkeypatch.setattr(ScriptedServer, "usual_context", local_server)
