"""The client of HTTP against a server that sends exactly the bytes it is told to: plain, over TLS, through proxies."""

import asyncio
import contextlib
import gc
import gzip
import ssl
import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import yarl

from assay.client import connecting, http1, http1_reply
from assay.client.http1 import HTTP1
from assay.client.retry import NetworkError, Retryability
from assay.client.transport import LARGEST_ERROR_BODY, HTTPReply, Stream
from assay.types import FailureCause
from tests.servers.proxy import Proxy

HEADERS = {"Authorization": "Bearer key", "Content-Type": "application/json"}


class RawServer:
    """Answers the n-th request with the n-th reply, byte for byte; the last one again and again."""

    context: ssl.SSLContext | None = None

    def __init__(self, *replies: bytes, close_after: bool = False) -> None:
        self.replies = replies
        self.close_after = close_after
        self.requests: list[bytes] = []
        self.connections: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "RawServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.context)
        port = self._server.sockets[0].getsockname()[1]
        scheme = "http" if self.context is None else "https"
        self.url = yarl.URL(f"{scheme}://127.0.0.1:{port}/v1/chat/completions")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self.connections:
            writer.close()
        await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next((line[15:] for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), b"0")
                self.requests.append(head + await reader.readexactly(int(length)))
                writer.write(self.replies[min(len(self.requests), len(self.replies)) - 1])
                await writer.drain()
                if self.close_after:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


def with_length(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *fields, f"Content-Length: {len(body)}", "", ""]).encode() + body


def chunked(*chunks: bytes, fields: str = "") -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return f"HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n".encode() + framed + b"0\r\n\r\n"


Make = Callable[[yarl.URL], HTTP1]


def plain(url: yarl.URL) -> HTTP1:
    return HTTP1(url, HEADERS, None, None)


@pytest.fixture(params=["plain", "tls", "tunnel"])
def make(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    authority_file: str,
    local_server: ssl.SSLContext,
) -> Iterator[Make]:
    """Makes a client; all that the test's servers and it say to each other goes the way that the parameter names."""
    way = request.param
    trust = None if way in ("plain", "proxy") else ssl.create_default_context(cafile=authority_file)
    if "t" in way[:1]:
        monkeypatch.setattr(RawServer, "context", local_server)
    with Proxy(context=local_server if way == "tunnel through tls" else None) as proxy:
        address = None if way in ("plain", "tls") else yarl.URL(proxy.url)
        yield lambda url: HTTP1(url, HEADERS, address, trust)
        if address is not None:
            assert proxy.heads
            assert all(head.startswith("CONNECT ") == way.startswith("tunnel") for head in proxy.heads)


def exchange(
    make: Make,
    server: RawServer,
    *,
    times: int = 1,
    timeout: float = 10.0,
    stream: Stream | None = None,
    between: Callable[[], Awaitable[Any]] = lambda: asyncio.sleep(0.02),
) -> list[HTTPReply | NetworkError]:
    """What `times` requests in a row bring."""

    async def run() -> list[HTTPReply | NetworkError]:
        replies: list[HTTPReply | NetworkError] = []
        async with server:
            client = make(server.url)
            try:
                for _ in range(times):
                    try:
                        replies.append(
                            await client.request("POST", server.url, b'{"a": 1}', timeout=timeout, stream=stream)
                        )
                    except NetworkError as error:
                        replies.append(error)
                    await between()
            finally:
                await client.close()
        return replies

    return asyncio.run(run())


def body_of(reply: HTTPReply | NetworkError) -> bytes | None:
    assert isinstance(reply, HTTPReply), reply
    return reply.body


def fault_of(reply: HTTPReply | NetworkError) -> tuple[FailureCause, Retryability]:
    assert isinstance(reply, NetworkError), reply
    return reply.fault.cause, reply.fault.retryability


SAID = b'{"choices": []}'
DEFLATE_WITHOUT_HEADER = zlib.compress(SAID)[2:-4]

WHOLE = {
    "content length": with_length(SAID),
    "no body": with_length(b""),
    "chunked": chunked(SAID[:4], SAID[4:]),
    "chunked with a trailer": chunked(SAID)[:-2] + b"X-Checksum: 1\r\n\r\n",
    "100 first": b"HTTP/1.1 100 Continue\r\n\r\n" + with_length(SAID),
    "103 first": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + with_length(SAID),
    "gzip": with_length(gzip.compress(SAID), "Content-Encoding: gzip"),
    "gzip, chunked": chunked(*(bytes([b]) for b in gzip.compress(SAID)), fields="Content-Encoding: gzip\r\n"),
    "deflate": with_length(zlib.compress(SAID), "content-encoding: deflate"),
    "deflate without zlib's header": with_length(DEFLATE_WITHOUT_HEADER, "Content-Encoding: Deflate"),
    "identity": with_length(SAID, "Content-Encoding: identity"),
    "gzip twice, in one field": with_length(gzip.compress(gzip.compress(SAID)), "Content-Encoding: gzip, gzip"),
    "gzip twice, in two": with_length(
        gzip.compress(gzip.compress(SAID)), "Content-Encoding: gzip", "Content-Encoding: gzip"
    ),
    "gzip and a name that says nothing": with_length(gzip.compress(SAID), "Content-Encoding: gzip, identity"),
    "deflate, then gzip": with_length(gzip.compress(zlib.compress(SAID)), "Content-Encoding: deflate, gzip"),
    "gzip filled up": with_length(gzip.compress(SAID) + bytes(8), "Content-Encoding: gzip"),
    **{
        f"encoding {name!r}": with_length(SAID, f"Content-Encoding: {name}")
        for name in ("none", "UTF-8", "binary", "", "chunked", "application/json", "identity, utf-8")
    },
    "lines without carriage returns": with_length(SAID).replace(b"\r\n", b"\n"),
    "odd header names and values": with_length(SAID, "X-Y: é", "Empty:", "Folded: a\r\n b"),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_whole_replies_are_read_and_the_connection_is_used_again(make: Make, kind: str) -> None:
    server = RawServer(WHOLE[kind])
    replies = exchange(make, server, times=3)
    assert [body_of(reply) for reply in replies] == [b"" if kind == "no body" else SAID] * 3
    assert len(server.connections) == 1


def test_a_reply_leaves_no_trace_in_the_next(make: Make) -> None:
    error = with_length(b"too busy", "Content-Language: en", status="503 Busy")
    sent = [reply for kind in WHOLE for reply in (error, WHOLE[kind])]
    server = RawServer(*sent)
    replies = exchange(make, server, times=len(sent))
    assert all(isinstance(reply, HTTPReply) for reply in replies)
    assert [(reply.status, reply.body) for reply in replies if isinstance(reply, HTTPReply)] == [
        expected for kind in WHOLE for expected in ((503, b"too busy"), (200, b"" if kind == "no body" else SAID))
    ]
    assert len(server.connections) == 1


@pytest.mark.parametrize("make", ["proxy", "tunnel through tls"], indirect=True)
def test_other_ways_to_a_server(make: Make) -> None:
    server = RawServer(WHOLE["content length"], WHOLE["chunked"])
    assert [body_of(reply) for reply in exchange(make, server, times=3)] == [SAID] * 3
    assert len(server.connections) == 1


CLOSING = {
    "connection: close": with_length(SAID, "Connection: close"),
    "HTTP/1.0": with_length(SAID).replace(b"HTTP/1.1", b"HTTP/1.0"),
}


@pytest.mark.parametrize("kind", CLOSING)
def test_a_connection_that_will_be_closed_is_not_used_again(make: Make, kind: str) -> None:
    server = RawServer(CLOSING[kind])
    assert [body_of(reply) for reply in exchange(make, server, times=2)] == [SAID] * 2
    assert len(server.connections) == 2


def test_a_body_may_end_with_the_connection(make: Make) -> None:
    server = RawServer(b"HTTP/1.1 200 OK\r\n\r\n" + SAID, close_after=True)
    assert [body_of(reply) for reply in exchange(make, server, times=2)] == [SAID] * 2


@pytest.mark.parametrize("surplus", [with_length(b'{"choices": ["of another"]}'), b"garbage\r\n\r\n"])
def test_what_follows_a_reply_is_never_the_answer_to_the_next_request(make: Make, surplus: bytes) -> None:
    server = RawServer(with_length(SAID) + surplus, with_length(b"second"))
    first, second = exchange(make, server, times=2)
    assert (body_of(first), body_of(second)) == (SAID, b"second")
    assert len(server.connections) == 2


def test_nor_is_what_comes_later_on_an_idle_connection(make: Make) -> None:
    server = RawServer(with_length(SAID), with_length(b"second"))

    async def send_unasked() -> None:
        server.connections[-1].write(with_length(b"unasked"))
        await asyncio.sleep(0.05)

    first, second = exchange(make, server, times=2, between=send_unasked)
    assert (body_of(first), body_of(second)) == (SAID, b"second")
    assert len(server.connections) == 2


@pytest.mark.parametrize(
    ("reply", "cause", "retryability"),
    [
        (b"", FailureCause.RESET, Retryability.UNSURE),
        (b"HTTP/1.1 200 OK\r\nContent-Le", FailureCause.RESET, Retryability.UNSURE),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n", FailureCause.RESET, Retryability.UNSURE),
        (with_length(SAID)[:-3], FailureCause.RESET, Retryability.YES),
        (chunked(SAID)[:-5], FailureCause.RESET, Retryability.YES),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", FailureCause.MALFORMED_REPLY, Retryability.YES),
        (chunked(SAID).replace(b"f\r\n", b"zz\r\n"), FailureCause.MALFORMED_REPLY, Retryability.YES),
        (with_length(SAID, "Content-Encoding: gzip"), FailureCause.MALFORMED_REPLY, Retryability.YES),
        (with_length(SAID, status="000 Nothing"), FailureCause.MALFORMED_REPLY, Retryability.YES),
        (
            b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
            FailureCause.MALFORMED_REPLY,
            Retryability.YES,
        ),
        (with_length(SAID, "Content-Encoding: br"), FailureCause.UNREADABLE_REPLY, Retryability.NO),
    ],
)
def test_broken_replies_are_faults(make: Make, reply: bytes, cause: FailureCause, retryability: Retryability) -> None:
    server = RawServer(reply, close_after=True)
    [fault] = exchange(make, server)
    assert fault_of(fault) == (cause, retryability)
    assert len(server.requests) == 1, "nothing is sent twice"


LINES_END_WITH_LF = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nf\n" + SAID + b"\n0\n\n"


@pytest.mark.parametrize(
    "reply",
    [
        LINES_END_WITH_LF,
        LINES_END_WITH_LF.replace(b"\r\n", b"\n"),
        LINES_END_WITH_LF.replace(b"f\n", b"f\r\n"),
        LINES_END_WITH_LF.replace(b"f\n", b"f;a=b\n"),
    ],
)
def test_chunks_without_carriage_returns_fail_at_once_and_are_not_asked_for_again(make: Make, reply: bytes) -> None:
    [fault] = exchange(make, RawServer(reply), timeout=3600)
    assert fault_of(fault) == (FailureCause.UNREADABLE_REPLY, Retryability.NO)
    assert isinstance(fault, NetworkError)
    assert fault.fault.status == 200, "it is about the reply, not about the server"
    assert "Missing expected CR after chunk" in str(fault)


def test_a_request_that_a_used_connection_loses_is_not_sent_again(make: Make) -> None:
    class ClosesOnSecond(RawServer):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append(writer)
            for reply in (with_length(SAID), b""):
                self.requests.append(await reader.readuntil(b'{"a": 1}'))
                writer.write(reply)
            writer.close()

    server = ClosesOnSecond()
    first, second = exchange(make, server, times=2)
    assert body_of(first) == SAID
    assert fault_of(second) == (FailureCause.RESET, Retryability.UNSURE)
    assert len(server.requests) == 2


def test_a_gzip_body_in_several_members_and_what_was_said_of_one_without_its_end() -> None:
    """Whether the answer is whole is seen in its JSON."""
    members = gzip.compress(SAID[:5]) + gzip.compress(SAID[5:])
    bodies = members, members[:-8], members[: len(gzip.compress(SAID[:5])) + 2]
    server = RawServer(*(with_length(body, "Content-Encoding: gzip") for body in bodies))
    assert [body_of(reply) for reply in exchange(plain, server, times=3)] == [SAID, SAID, SAID[:5]]


def test_an_encoding_that_was_not_asked_for_is_a_fault() -> None:
    [fault] = exchange(plain, RawServer(with_length(SAID, "Content-Encoding: compress")))
    assert fault_of(fault) == (FailureCause.UNREADABLE_REPLY, Retryability.NO)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_the_largest_reply_is_read_and_a_larger_one_is_not(
    make: Make, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 2**20
    monkeypatch.setattr(http1_reply, "LARGEST_REPLY", largest)
    fields = ["Content-Encoding: gzip"] if compress is gzip.compress else []
    for size, read in ((largest, bytes(largest)), (largest + 1, None)):
        [reply] = exchange(make, RawServer(with_length(compress(bytes(size)), *fields)))
        assert body_of(reply) == read


def test_of_an_error_the_beginning_is_read_as_far_as_it_comes(make: Make) -> None:
    long = with_length(b"x" * 10 * LARGEST_ERROR_BODY, "Retry-After: 7", status="503 Busy")
    [reply] = exchange(make, RawServer(long))
    assert isinstance(reply, HTTPReply)
    assert (reply.status, reply.headers["retry-after"]) == (503, "7")
    assert LARGEST_ERROR_BODY <= len(reply.body or b"") < 10 * LARGEST_ERROR_BODY
    [cut] = exchange(make, RawServer(long[:200], close_after=True))
    assert isinstance(cut, HTTPReply)
    assert (cut.body or b"").startswith(b"xxx")
    [stalled] = exchange(make, RawServer(long[:200]), timeout=0.2)
    assert isinstance(stalled, HTTPReply)
    assert stalled.status == 503


def test_the_body_of_an_error_is_not_waited_for_as_long_as_an_answer(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "_ERROR_BODY_SECONDS", 0.3)
    unending = b'HTTP/1.1 500 Oops\r\nContent-Length: 99\r\n\r\n{"error": "out of'
    [reply] = exchange(make, RawServer(unending), timeout=3600.0)
    assert isinstance(reply, HTTPReply)
    assert (reply.status, reply.body) == (500, b'{"error": "out of')


def test_a_reply_that_does_not_come_in_time_is_a_fault(make: Make) -> None:
    for begun in (b"", with_length(SAID)[:-3]):
        [fault] = exchange(make, RawServer(begun), timeout=0.2)
        assert fault_of(fault) == (FailureCause.TIMED_OUT, Retryability.YES)


@pytest.mark.parametrize(("first", "second"), [(30.0, 0.2), (0.2, 0.5)])
def test_each_request_on_a_connection_has_the_time_that_it_was_given(make: Make, first: float, second: float) -> None:
    async def work() -> None:
        async with RawServer(with_length(b"{}"), b"HTTP/1.1 200") as server:
            client = make(server.url)
            loop = asyncio.get_running_loop()
            try:
                await client.request("POST", server.url, b"{}", timeout=first)
                began = loop.time()
                with pytest.raises(NetworkError) as raised:
                    await client.request("POST", server.url, b"{}", timeout=second)
                waited = loop.time() - began
            finally:
                await client.close()
            assert raised.value.fault.cause is FailureCause.TIMED_OUT
            assert second <= waited < second + 5
            assert len(server.connections) == 1

    asyncio.run(work())


def test_a_head_that_does_not_end_is_a_fault() -> None:
    endless = b"HTTP/1.1 200 OK\r\n" + b"X-Again: and again\r\n" * 50_000
    [fault] = exchange(plain, RawServer(endless))
    assert fault_of(fault) == (FailureCause.MALFORMED_REPLY, Retryability.YES)


def test_a_connection_idle_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "KEEPALIVE", 0.01)
    server = RawServer(with_length(SAID))
    assert [body_of(reply) for reply in exchange(plain, server, times=3)] == [SAID] * 3
    assert len(server.connections) == 3


def test_a_connection_that_is_not_made_in_time_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(connecting, "start_connection", never)
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT", 0.05)
    [fault] = exchange(plain, RawServer(b""))
    assert fault_of(fault) == (FailureCause.UNREACHABLE, Retryability.SERVER_DOWN)


def test_a_host_without_an_address_is_a_fault() -> None:
    async def ask() -> None:
        url = yarl.URL("http://model.invalid/v1")
        await plain(url).request("GET", url, timeout=10)

    with pytest.raises(NetworkError) as caught:
        asyncio.run(ask())
    assert fault_of(caught.value) == (FailureCause.UNREACHABLE, Retryability.SERVER_DOWN)


def test_what_is_sent_is_what_lm_eval_sends(make: Make) -> None:
    """As aiohttp writes it, but for the name of the program and the encodings that are understood."""
    server = RawServer(with_length(SAID))
    exchange(make, server)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    kept = dict(field.split(": ", 1) for field in fields)
    assert (first, body) == ("POST /v1/chat/completions HTTP/1.1", b'{"a": 1}')
    assert kept == {
        "Host": f"127.0.0.1:{server.url.port}",
        **HEADERS,
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
        "Content-Length": "8",
    }


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("http://[::1]:8000/v1/models?a=b", "[::1]:8000", "/v1/models?a=b"),
        ("http://höst.example/v1/ü", "xn--hst-sna.example", "/v1/%C3%BC"),
        ("http://host:80/", "host", "/"),
        ("http://[fe80::1%25eth0]:8000/v1", "[fe80::1]:8000", "/v1"),
        ("http://[fe80::1%eth0]/v1", "[fe80::1]", "/v1"),
    ],
)
def test_addresses_are_written_as_http_wants_them(url: str, host: str, target: str) -> None:
    client = HTTP1(yarl.URL(url), {}, None, None)
    assert client.head("GET", yarl.URL(url)).startswith(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n".encode())


def test_the_zone_of_an_address_is_for_this_machine_alone() -> None:
    """The resolver's answer depends on the machine's interfaces; that it is asked in its own form does not."""
    asked = []

    async def run() -> None:
        url = yarl.URL("http://[fe80::1%25nosuch0]:8000/v1")

        async def look_up(host: str, port: int, **_: Any) -> list[Any]:
            asked.append((host, port))
            raise OSError("no such interface")

        asyncio.get_running_loop().getaddrinfo = look_up  # type: ignore[method-assign,assignment]
        with pytest.raises(NetworkError, match="no such interface"):
            await plain(url).request("GET", url, timeout=5)

    asyncio.run(run())
    assert asked == [("fe80::1%nosuch0", 8000)]


def test_a_connection_keeps_nothing_of_a_reply_that_has_been_read() -> None:
    async def keepers() -> list[object]:
        async with RawServer(with_length(b"x" * 1000)) as server:
            client = plain(server.url)
            reply = await client.request("POST", server.url, b"{}", timeout=5)
            found = gc.get_referrers(reply.body)
            await client.close()
        return [each for each in found if each is not reply]

    assert asyncio.run(keepers()) == []


# --- proxies ------------------------------------------------------------------------------------------------------


def test_a_proxy_s_refusal_is_a_fault(local_server: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RawServer, "context", local_server)
    for status, cause, retryability in (
        (407, FailureCause.UNAUTHORISED, Retryability.NO),
        (403, FailureCause.UNAUTHORISED, Retryability.NO),
        (502, FailureCause.UNREACHABLE, Retryability.SERVER_DOWN),
        (429, FailureCause.RATE_LIMITED, Retryability.YES),
    ):
        with Proxy(refuse=status) as proxy:
            [fault] = exchange(
                lambda url: HTTP1(url, HEADERS, yarl.URL(proxy.url), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)),
                RawServer(with_length(SAID)),
            )
        assert fault_of(fault) == (cause, retryability)
        assert f"the proxy answered {status} No" in str(fault)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n\r\n", b"", b"x" * 100_000])
def test_so_is_a_proxy_that_is_none(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RawServer, "context", None)

    async def run() -> HTTPReply:
        async with RawServer(answer, close_after=True) as none:
            url = yarl.URL("https://model.invalid/v1/models")
            return await HTTP1(url, HEADERS, none.url.origin(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)).request(
                "GET", url, timeout=5
            )

    with pytest.raises(NetworkError) as caught:
        asyncio.run(run())
    assert fault_of(caught.value) == (FailureCause.UNREACHABLE, Retryability.SERVER_DOWN)


def test_a_tunnel_s_proxy_sees_neither_key_nor_prompt_and_knows_who_asks(
    authority_file: str, local_server: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RawServer, "context", local_server)
    trust = ssl.create_default_context(cafile=authority_file)
    with Proxy() as proxy:
        address = yarl.URL(proxy.url).with_user("user").with_password("pass:word")
        server = RawServer(with_length(SAID))
        [reply] = exchange(lambda url: HTTP1(url, HEADERS, address, trust), server)
    assert body_of(reply) == SAID
    [head] = proxy.heads
    assert head.split("\r\n")[:3] == [
        f"CONNECT 127.0.0.1:{server.url.port} HTTP/1.1",
        f"Host: 127.0.0.1:{server.url.port}",
        "Proxy-Authorization: Basic dXNlcjpwYXNzOndvcmQ=",
    ]
    assert b"Proxy-Authorization" not in server.requests[0]


# --- streams ------------------------------------------------------------------------------------------------------


class Feed(list[bytes]):
    """Keeps what it is given, and always wants more."""

    def __call__(self, part: bytes) -> bool:
        self.append(part)
        return True


PARTS = [b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"]


def test_a_stream_is_fed_part_by_part_and_the_connection_is_used_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "_CLOSES_WITHIN", 0.005)
    fed = Feed()
    server = RawServer(chunked(*PARTS, fields="Content-Type: text/event-stream\r\n"))
    replies = exchange(make, server, times=2, stream=Stream(fed, 5.0))
    assert [body_of(reply) for reply in replies] == [b"", b""]
    assert fed == PARTS * 2
    assert len(server.connections) == 1
    assert b"Accept: text/event-stream\r\nAccept-Encoding: identity\r\n" in server.requests[0]


@pytest.mark.parametrize("pause", [0.0, 0.2])
def test_a_server_that_closes_connections_after_streams_loses_no_request(
    make: Make, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """As llama.cpp's does a moment after the stream, having sent ``Keep-Alive``."""

    class ClosesAfterStream(RawServer):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append(writer)
            await reader.readuntil(b'{"a": 1}')
            writer.write(chunked(*PARTS, fields="Keep-Alive: timeout=5, max=100\r\n"))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.05)
            writer.close()

    monkeypatch.setattr(http1, "_CLOSES_WITHIN", 0.1)
    server = ClosesAfterStream()
    replies = exchange(make, server, times=4, stream=Stream(Feed(), 5.0), between=lambda: asyncio.sleep(pause))
    assert [body_of(reply) for reply in replies] == [b""] * 4
    assert len(server.connections) == 4


def test_a_stream_that_comes_compressed_all_the_same_is_fed_whole(make: Make) -> None:
    fed = Feed()
    server = RawServer(with_length(gzip.compress(b"".join(PARTS)), "Content-Encoding: gzip"))
    [reply] = exchange(make, server, stream=Stream(fed, 5.0))
    assert body_of(reply) == b""
    assert fed == [b"".join(PARTS)]


def test_an_error_instead_of_a_stream_is_a_reply(make: Make) -> None:
    fed = Feed()
    server = RawServer(with_length(b"too busy", status="503 Busy"))
    [reply] = exchange(make, server, stream=Stream(fed, 5.0))
    assert (body_of(reply), fed) == (b"too busy", [])


def test_the_end_of_a_body_is_not_waited_for_long_once_all_was_said(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "_END_OF_STREAM_SECONDS", 0.05)
    fed = Feed()
    server = RawServer(chunked(b"data: [DONE]\n\n")[:-5])
    [fault] = exchange(make, server, timeout=3600, stream=Stream(fed, 3600, lambda: bool(fed)))
    assert fault_of(fault) == (FailureCause.TIMED_OUT, Retryability.YES)
    assert fed == [b"data: [DONE]\n\n"]


def test_a_stream_of_which_no_more_is_wanted_ends_and_with_it_the_connection(make: Make) -> None:
    server = RawServer(chunked(*PARTS), with_length(b"second"))
    first, second = exchange(make, server, times=2, stream=Stream(lambda part: b"2" not in part, 5.0))
    assert (body_of(first), body_of(second)) == (b"", b"")
    assert len(server.connections) == 2


def test_a_stream_may_stall_for_less_than_its_time_out_and_may_begin_late() -> None:
    class Slow(RawServer):
        async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections.append(writer)
            await reader.readuntil(b'{"a": 1}')
            whole = chunked(*PARTS)
            begun = whole.index(b"data: 1")
            for pause, data in ((0.0, whole[: begun - 3]), (0.6, whole[begun - 3 : begun]), (0.1, whole[begun:-20])):
                await asyncio.sleep(pause)
                writer.write(data)
            await asyncio.sleep(self.last_pause)
            writer.write(whole[-20:])

        last_pause = 0.1

    never = Stream(lambda _: True, 0.4)
    assert body_of(exchange(plain, Slow(), stream=never)[0]) == b""
    Slow.last_pause = 0.8
    [fault] = exchange(plain, Slow(), stream=never)
    assert fault_of(fault) == (FailureCause.TIMED_OUT, Retryability.YES)
    assert "nothing came for 0.4 s" in str(fault)
