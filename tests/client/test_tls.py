"""TLS: whom the client trusts, what it shows, and how it says what is wrong."""

import asyncio
import contextlib
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trustme
import yarl

from assay.client import connecting
from assay.client.connecting import Connector
from assay.client.http1 import HTTP1
from assay.client.openai import OpenAIModel
from assay.client.retry import NetworkError, Retryability
from assay.client.tls import client_context
from assay.client.tls_faults import lost_connection_fault
from assay.errors import ServerUnreachableError, SpecificationError
from assay.types import TLS, Answer, ModelSpec, Request, Response
from tests.servers.proxy import Proxy
from tests.servers.scripted import ScriptedServer

REQUEST = Request("task", 0, 0, 0, "generate_until", b'{"model": "scripted-model", "messages": []}', "key")


class Files(NamedTuple):
    """An authority's certificate, a client's that it vouches for, and that one's key."""

    authority: str
    certificate: str
    key: str
    both: str
    of_another: str


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    client, other = authority.issue_cert("client@example.org"), authority.issue_cert("other@example.org")
    made = {
        "authority": authority.cert_pem,
        "certificate": client.cert_chain_pems[0],
        "key": client.private_key_pem,
        "both": client.private_key_and_cert_chain_pem,
        "of_another": other.private_key_pem,
    }
    for name, pem in made.items():
        pem.write_to_path(str(folder / name))
    return Files(**{name: str(folder / name) for name in made})


def served(authority: trustme.CA, host: str = "127.0.0.1", *, wants_certificate: bool = False) -> ScriptedServer:
    """A server with a certificate for `host`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(context)
    if wants_certificate:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return ScriptedServer(context=context)


async def ask(url: str, tls: TLS) -> Response:
    spec = ModelSpec(base_url=url, model="scripted-model", tls=tls, max_attempts=1, give_up_after=0.1)
    async with OpenAIModel(spec, api_key="key") as model:
        return await model.ask(REQUEST)


def test_a_server_of_a_known_authority_is_trusted(authority: trustme.CA, files: Files) -> None:
    with served(authority) as server:
        assert isinstance(asyncio.run(ask(server.url, TLS(ca_file=files.authority))), Answer)


def test_the_environment_may_name_the_authority(
    authority: trustme.CA, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", files.authority)
    with served(authority) as server:
        assert isinstance(asyncio.run(ask(server.url, TLS())), Answer)


def test_any_certificate_is_taken_on_demand(authority: trustme.CA) -> None:
    with served(authority, "other.example.org") as server:
        assert isinstance(asyncio.run(ask(server.url, TLS(insecure=True))), Answer)


@pytest.mark.parametrize(("host", "known"), [("127.0.0.1", False), ("other.example.org", True)])
def test_others_are_refused_at_once(authority: trustme.CA, files: Files, host: str, known: bool) -> None:
    tls = TLS(ca_file=files.authority) if known else TLS()
    with served(authority, host) as server:
        with pytest.raises(ServerUnreachableError, match=r"certificate is not trusted.*--ca-file"):
            asyncio.run(ask(server.url, tls))
        assert server.count == 0


def test_a_certificate_is_shown_to_who_wants_it(authority: trustme.CA, files: Files) -> None:
    with served(authority, wants_certificate=True) as server:
        for certificate, key in ((files.both, None), (files.certificate, files.key)):
            tls = TLS(ca_file=files.authority, client_cert=certificate, client_key=key)
            assert isinstance(asyncio.run(ask(server.url, tls)), Answer)


@contextlib.contextmanager
def one_connection(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Lets `serve` have the first connection; gives the port. Blocking sockets send alerts, and asyncio's do not."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(timeout=10)


def handshake(authority: trustme.CA, **settings: Any) -> Callable[[socket.socket], None]:
    """Serves TLS as the context's attributes say."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    if "minimum_version" in settings:
        context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of old versions
        for name, value in settings.items():
            setattr(context, name, value)
    return lambda connection: context.wrap_socket(connection, server_side=True).close()


V = ssl.TLSVersion
REFUSED_HANDSHAKES: dict[str, tuple[dict[str, Any], str]] = {
    "old versions": (
        {"minimum_version": V.TLSv1, "maximum_version": V.TLSv1_1},
        "speaks no version of TLS that is taken",
    ),
    "certificate wanted": (
        {"verify_mode": ssl.CERT_REQUIRED, "maximum_version": V.TLSv1_2},
        r"refused the TLS connection.*\(--client-cert\)",
    ),
    "name not known": (
        {"sni_callback": lambda *_: ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME},
        "has no certificate for the host's name",
    ),
}


@pytest.mark.parametrize("kind", REFUSED_HANDSHAKES)
def test_a_refused_handshake_is_told_in_words_and_ends_the_run(authority: trustme.CA, files: Files, kind: str) -> None:
    settings, said = REFUSED_HANDSHAKES[kind]
    with one_connection(handshake(authority, **settings)) as port, pytest.raises(ServerUnreachableError, match=said):
        asyncio.run(ask(f"https://127.0.0.1:{port}", TLS(ca_file=files.authority)))


SAYS_FIRST = {
    "HTTP": ("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS at this port.*http://"),
    "SSH": ("https", b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak TLS at this port"),
    "TLS": ("http", b"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS at this port.*https://"),
    "HTTP/2": ("http", b"\x00\x00\x12\x04" + bytes(5) + b"\x00\x03\x00\x00\x00\x80", "HTTP/2 alone.*gRPC"),
}


@pytest.mark.parametrize("kind", SAYS_FIRST)
def test_another_protocol_at_the_port_is_named_and_ends_the_run(kind: str) -> None:
    scheme, reply, said = SAYS_FIRST[kind]

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(reply)
        connection.recv(4096)

    with one_connection(serve) as port, pytest.raises(ServerUnreachableError, match=said) as caught:
        asyncio.run(ask(f"{scheme}://127.0.0.1:{port}", TLS(insecure=True) if scheme == "https" else TLS()))
    assert "permitted" not in str(caught.value)


def read_once(connection: socket.socket) -> None:
    connection.recv(65536)


def test_a_handshake_that_just_ends_is_an_outage() -> None:
    with one_connection(read_once) as port:
        url = yarl.URL(f"https://127.0.0.1:{port}")
        connector = Connector(url, None, client_context(TLS()))
        with pytest.raises(NetworkError, match="ended the TLS handshake: the connection was closed") as caught:
            asyncio.run(connector.connect(asyncio.Protocol))
    assert caught.value.fault.retryability is Retryability.SERVER_DOWN


def test_a_handshake_without_an_answer_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "HANDSHAKE_TIMEOUT", 0.1)

    def read_on(connection: socket.socket) -> None:
        while connection.recv(4096):
            pass

    with one_connection(read_on) as port:
        connector = Connector(yarl.URL(f"https://127.0.0.1:{port}"), None, client_context(TLS()))
        with pytest.raises(NetworkError, match=r"does not answer in TLS.*http://") as caught:
            asyncio.run(connector.connect(asyncio.Protocol))
    assert caught.value.fault.retryability is Retryability.SERVER_DOWN


def read_to_the_end_of_a_head(connection: socket.socket) -> None:
    """As cpp-httplib does, on which llama.cpp's server is built: it waits for a line's end that TLS does not have."""
    head = b""
    while b"\r\n\r\n" not in head and (part := connection.recv(4096)):
        head += part
    if part:
        connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


@contextlib.contextmanager
def connections(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """As :func:`one_connection`, for any number at the same time."""

    def run(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            serve(connection)

    def take_all(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the test is over
            while True:
                threading.Thread(target=run, args=(listening.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=take_all, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1]


@pytest.mark.parametrize("through_proxy", [False, True])
def test_a_handshake_that_gets_no_answer_is_not_waited_for_where_the_server_speaks_http(
    through_proxy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CHECK_HANDSHAKE_AFTER", 0.1)
    with connections(read_to_the_end_of_a_head) as port, Proxy() as proxy:
        url = yarl.URL(f"https://127.0.0.1:{port}")
        connector = Connector(url, yarl.URL(proxy.url) if through_proxy else None, client_context(TLS()))
        with pytest.raises(NetworkError, match=r"does not speak TLS at this port.*http://") as caught:
            asyncio.run(connector.connect(asyncio.Protocol))
    assert caught.value.fault.retryability is Retryability.NO


def test_a_slow_handshake_is_waited_for_where_the_server_says_that_it_wants_tls(
    authority: trustme.CA, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "_CHECK_HANDSHAKE_AFTER", 0.01)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    was_asked_plainly = threading.Event()

    def serve(connection: socket.socket) -> None:
        if connection.recv(1, socket.MSG_PEEK) == b"G":
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\nThe plain HTTP request was sent to HTTPS port")
            was_asked_plainly.set()
            return
        was_asked_plainly.wait(10)
        with context.wrap_socket(connection, server_side=True) as encrypted:
            encrypted.recv(1)

    class Opened(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()

    with connections(serve) as port:
        connector = Connector(yarl.URL(f"https://127.0.0.1:{port}"), None, client_context(TLS(ca_file=files.authority)))
        asyncio.run(connector.connect(Opened))
    assert was_asked_plainly.is_set()


def test_a_server_of_tls_that_says_nothing_to_plain_http_is_known(authority: trustme.CA) -> None:
    """As asyncio's do, and so uvicorn and vLLM."""
    with served(authority) as server:
        url = server.url.replace("https", "http")
        with pytest.raises(ServerUnreachableError, match=r"speaks TLS at this port.*https://"):
            asyncio.run(ask(url, TLS()))


@pytest.mark.parametrize(("reply", "looks"), [(b"", 1), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 0)])
def test_whether_it_speaks_tls_is_looked_at_once_and_only_if_no_reply_begins(
    reply: bytes, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that reads lines does not answer such a look, which then takes seconds."""
    monkeypatch.setattr(connecting, "_CHECK_TIMEOUT", 0.1)
    beginnings = []

    def serve(connection: socket.socket) -> None:
        beginnings.append(connection.recv(1, socket.MSG_PEEK))
        while beginnings[-1] == b"\x16" and connection.recv(4096):
            pass
        connection.recv(65536)
        connection.sendall(reply)

    async def ask_four_times(url: yarl.URL) -> None:
        client = HTTP1(url, {}, None, None)
        for _ in range(4):
            with pytest.raises(NetworkError):
                await client.request("GET", url, timeout=10)
        await client.close()

    with connections(serve) as port:
        asyncio.run(ask_four_times(yarl.URL(f"http://127.0.0.1:{port}")))
    assert beginnings.count(b"G") == 4
    assert beginnings.count(b"\x16") == looks


def test_nor_does_such_a_server_say_that_a_certificate_is_wanted(authority: trustme.CA, files: Files) -> None:
    async def look(url: str) -> None:
        spec = ModelSpec(base_url=url, model="scripted-model", tls=TLS(ca_file=files.authority))
        async with OpenAIModel(spec, api_key=None) as model:
            await model.server_info()

    with (
        served(authority, wants_certificate=True) as server,
        pytest.raises(ServerUnreachableError, match=r"does it want a certificate of yours.*\(--client-cert\)"),
    ):
        asyncio.run(look(server.url))


@pytest.mark.parametrize("reason", ["WRONG_VERSION_NUMBER", "DECRYPTION_FAILED_OR_BAD_RECORD_MAC"])
def test_tls_that_breaks_after_the_handshake_is_a_passing_fault(reason: str) -> None:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    assert lost_connection_fault(error).retryability is Retryability.UNSURE


def test_without_one_such_a_server_is_given_up_at_once(authority: trustme.CA, files: Files) -> None:
    """nginx answers in HTTP; OpenSSL's own way is an alert after the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def run_preflight(url: str) -> None:
        spec = ModelSpec(base_url=url, model="scripted-model", tls=TLS(ca_file=files.authority))
        async with OpenAIModel(spec, api_key=None) as model:
            await model.server_info()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=refuse_all, args=(listening, context), daemon=True).start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(ServerUnreachableError, match=r"certificate required.*--client-cert"):
            asyncio.run(ask(url, TLS(ca_file=files.authority)))
        with pytest.raises(ServerUnreachableError, match=r"certificate required.*--client-cert"):
            asyncio.run(run_preflight(url))


def refuse_all(listening: socket.socket, context: ssl.SSLContext) -> None:
    with contextlib.suppress(OSError):  # the test is over
        while True:
            connection, _ = listening.accept()
            with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as refused:
                with contextlib.suppress(OSError):
                    refused.do_handshake()
                threading.Event().wait(0.2)  # closing at once would reset the connection, and the alert be lost


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        ({"ca_file": "missing.pem"}, "cannot read the CA file missing.pem: No such file"),
        ({"ca_file": "."}, "cannot read the CA file .: Is a directory"),
        ({"ca_file": "{junk}"}, "holds no certificates in PEM format"),
        ({"ca_file": "{empty}"}, "holds no certificates in PEM format"),
        ({"client_cert": "missing.pem"}, "cannot read the client certificate missing.pem"),
        ({"client_cert": "{certificate}", "client_key": "missing.pem"}, "cannot read the client key missing.pem"),
        ({"client_cert": "{certificate}"}, "is its key in another file"),
        ({"client_cert": "{junk}", "client_key": "{key}"}, "not both are there in PEM format"),
        ({"client_cert": "{certificate}", "client_key": "{of_another}"}, "the key belongs to another certificate"),
        ({"client_cert": "{certificate}", "client_key": "{encrypted}"}, "the client key is encrypted"),
        ({"client_key": "{key}"}, "without its certificate"),
        ({"insecure": True, "ca_file": "{authority}"}, "choose one"),
    ],
)
def test_files_that_cannot_be_used_are_named(files: Files, tmp_path: Path, tls: dict[str, Any], said: str) -> None:
    (tmp_path / "junk").write_bytes(b"\x00junk")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "encrypted").write_bytes(encrypted(Path(files.key)))
    known = {**files._asdict(), **{name: str(tmp_path / name) for name in ("junk", "empty", "encrypted")}}
    given: dict[str, Any] = {
        name: value.format(**known) if isinstance(value, str) else value for name, value in tls.items()
    }
    with pytest.raises(SpecificationError, match=said) as caught:
        client_context(TLS(**given))
    assert "\n" not in str(caught.value)
    with pytest.raises(SpecificationError):
        OpenAIModel(ModelSpec(base_url="http://127.0.0.1:9", model="m", tls=TLS(**given)), api_key=None)


def encrypted(key: Path) -> bytes:
    """The key behind a passphrase."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    loaded = load_pem_private_key(key.read_bytes(), None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"passphrase"))
