"""Which proxy the environment names, and whom it exempts."""

import pytest
import yarl

from assay.client.proxies import proxy_for
from assay.errors import SpecificationError

NAMES = [f"{scheme}_proxy" for scheme in ("http", "https", "all", "no")]


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("address", "proxy"),
    [
        ("http://p:3128", "http://p:3128"),
        ("p:3128", "http://p:3128"),
        ("//p:3128", "http://p:3128"),
        ("p", "http://p"),
        (" http://p:3128/ ", "http://p:3128/"),
        ("HTTPS://p", "https://p"),
        ("http://user:pa%40ss@p:3128", "http://user:pa%40ss@p:3128"),
        ("[::1]:3128", "http://[::1]:3128"),
        ("http://höst:1", "http://höst:1"),
        ("", None),
        ("  ", None),
    ],
)
def test_addresses_of_proxies(address: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", address)
    assert proxy_for(yarl.URL("http://model.example/v1")) == (proxy and yarl.URL(proxy))


@pytest.mark.parametrize(
    "address",
    [
        "http://p:99999",
        "p:99999",
        "http://p:0",
        "http://p:port",
        "http://[::1",
        "http://",
        "http:p",
        "http://user@",
        "http://a..b:1",
        "http://p :1",
        "http://p q:1",
        "socks5://p:1080",
        "http://user:hunter22@p:99999",
        "user:hunter22@p:99999",
        "http://user:hun/ter22@p:1x",
    ],
)
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_what_is_no_proxy_is_refused_by_name_and_without_its_password(
    address: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, address)
    with pytest.raises(SpecificationError, match=f"^{variable.upper()} is .*http://proxy:3128") as refused:
        proxy_for(yarl.URL("http://model.example/v1"))
    assert "ter22" not in str(refused.value)


def test_one_proxy_for_all_counts_where_none_is_named_for_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://all:1")
    monkeypatch.setenv("HTTPS_PROXY", "http://secure:1")
    assert proxy_for(yarl.URL("http://h")) == yarl.URL("http://all:1")
    assert proxy_for(yarl.URL("https://h")) == yarl.URL("http://secure:1")


EXEMPT = [
    ("http://10.1.2.3:8000", "10.0.0.0/8"),
    ("http://10.1.2.3:8000", "10.1.2.3"),
    ("http://10.1.2.3:8000", "10.1.2.3:8000"),
    ("http://10.1.2.3:8000", "10.0.0.1/8"),
    ("http://10.1.2.3:8000", "http://10.1.2.3"),
    ("http://10.1.2.3:8000", "other, 10.0.0.0/8"),
    ("http://10.1.2.3:8000", "other 10.0.0.0/8"),
    ("http://[fd00::7]:8000", "fd00::/8"),
    ("http://[fd00::7]:8000", "[fd00::7]"),
    ("http://[fd00::7]:8000", "[fd00::7]:8000"),
    ("http://[fd00::7]:8000", "fd00:0::7"),
    ("http://[fe80::1%25eth0]:8000", "fe80::/10"),
    ("http://[::1]:8000", "::1"),
    ("http://llm.corp.example", "corp.example"),
    ("http://llm.corp.example", ".corp.example"),
    ("http://llm.corp.example", "*.corp.example"),
    ("http://llm.corp.example", "*.CORP.example"),
    ("http://corp.example", "*.corp.example"),
    ("http://corp.example.", "corp.example"),
    ("http://corp.example", "corp.example."),
    ("http://corp.example:8000", "corp.example:8000"),
    ("http://corp.example:8000", "all://corp.example"),
    ("https://corp.example", "https://corp.example"),
    ("http://llm.höst.example", "*.höst.example"),
    ("http://anything", "*"),
    ("http://anything", "other,*"),
    ("http://localhost:8000", "localhost"),
]
PROXIED = [
    ("http://11.1.2.3:8000", "10.0.0.0/8"),
    ("http://10.1.2.3:8000", "10.1.2.3:8001"),
    ("http://10.1.2.3:8000", "10.1.2.0/99"),
    ("http://[fd00::7]:8000", "fe80::/10"),
    ("http://10.1.2.3", "::/0"),
    ("http://notcorp.example", "corp.example"),
    ("http://notcorp.example", "*.corp.example"),
    ("http://corp.example.org", "corp.example"),
    ("http://corp.example", "https://corp.example"),
    ("http://corp.example", "corp.example:1"),
    ("http://corp.example", ""),
    ("http://corp.example", " , ,"),
    ("http://corp.example", ".,[,://,a..b,:1,[]:80,%"),
]


@pytest.mark.parametrize(
    ("url", "exempt", "proxied"), [(*case, False) for case in EXEMPT] + [(*case, True) for case in PROXIED]
)
def test_who_is_exempt(url: str, exempt: str, proxied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for scheme in ("HTTP", "HTTPS"):
        monkeypatch.setenv(f"{scheme}_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", exempt)
    assert (proxy_for(yarl.URL(url)) is not None) is proxied


def test_an_exempt_server_does_not_suffer_from_a_broken_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
    assert proxy_for(yarl.URL("http://127.0.0.1:8000")) is None
