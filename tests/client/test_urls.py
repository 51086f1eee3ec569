import pytest

from assay.client.urls import endpoint_url, models_url, server_root, without_secrets
from assay.errors import SpecificationError

SAME_SERVER = (
    "http://host:8000",
    "http://host:8000/",
    " http://host:8000 ",
    "http://host:8000/v1",
    "http://host:8000/v1/",
    "http://host:8000/v1/chat/completions",
    "http://host:8000/v1/chat/completions/",
    "http://host:8000/v1/completions",
    "http://host:8000/v1/models",
)


@pytest.mark.parametrize("base_url", SAME_SERVER)
def test_every_way_to_name_a_server_leads_to_its_endpoints(base_url: str) -> None:
    assert endpoint_url(base_url, "chat") == "http://host:8000/v1/chat/completions"
    assert endpoint_url(base_url, "completions") == "http://host:8000/v1/completions"
    assert models_url(base_url) == "http://host:8000/v1/models"
    assert server_root(base_url) == "http://host:8000"


@pytest.mark.parametrize(
    ("base_url", "url", "root"),
    [
        ("https://gateway/team/llm", "https://gateway/team/llm/v1/chat/completions", "https://gateway/team/llm"),
        ("https://gateway/team/v1", "https://gateway/team/v1/chat/completions", "https://gateway/team"),
        ("http://ovms:8000/v3", "http://ovms:8000/v3/chat/completions", "http://ovms:8000"),
        ("https://host/v1beta/openai/chat/completions", "https://host/v1beta/openai/chat/completions", None),
        ("http://host/chat/completions", "http://host/chat/completions", "http://host"),
        ("https://az/deployments/m?api-version=2", "https://az/deployments/m/v1/chat/completions?api-version=2", None),
        ("https://host/v1beta/openai", "https://host/v1beta/openai/chat/completions", "https://host/v1beta/openai"),
        ("https://host/v1/openai/", "https://host/v1/openai/chat/completions", "https://host/v1/openai"),
        ("https://host/v1/gateway/v4", "https://host/v1/gateway/v4/chat/completions", "https://host/v1/gateway"),
        ("https://host/openai", "https://host/openai/v1/chat/completions", "https://host/openai"),
        ("http://host//v1", "http://host/v1/chat/completions", "http://host"),
        ("https://host/v1?user=a@b", "https://host/v1/chat/completions?user=a@b", "https://host"),
        ("http://[fe80::1%25eth0]:8000", "http://[fe80::1%25eth0]:8000/v1/chat/completions", None),
        ("http://höst.example", "http://höst.example/v1/chat/completions", "http://höst.example"),
        ("http://host/v1#fragment", "http://host/v1/chat/completions", "http://host"),
        ("http://[::1]:8000", "http://[::1]:8000/v1/chat/completions", "http://[::1]:8000"),
        ("HTTP://host/v1", "http://host/v1/chat/completions", "http://host"),
    ],
)
def test_prefixes_versions_and_queries_are_kept(base_url: str, url: str, root: str | None) -> None:
    assert endpoint_url(base_url, "chat") == url
    if root is not None:
        assert server_root(base_url) == root


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "localhost:8000",
        "host",
        "ftp://host",
        "http://",
        "http:///v1",
        "http://host:99999",
        "http://host:port",
        "http://a b",
        "http://[::1",
        "http://host/\nx",
        "http://:8000",
        "http://host\\v1",
        "http://<host>/v1",
        "unix:///run/llm.sock",
        "http+unix://%2Frun%2Fllm.sock/v1",
        "http://a..b",
        "http://xn--:1",
        f"http://{'x' * 300}.com",
        "\0" * 100_000,
    ],
)
def test_anything_else_is_refused(base_url: str) -> None:
    with pytest.raises(SpecificationError, match="base URL") as refused:
        endpoint_url(base_url, "chat")
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "base_url",
    [
        "https://user:hunter22@host",
        "https://user:hun/ter22@host",
        "https://user:hun?ter22@host",
        "user:hunter22@host",
        "https://hunter22@host:port",
        "ftp://host?token=hunter22",
    ],
)
def test_credentials_in_a_url_that_is_refused_are_not_repeated(base_url: str) -> None:
    with pytest.raises(SpecificationError) as refused:
        endpoint_url(base_url, "chat")
    assert "ter22" not in str(refused.value)


@pytest.mark.parametrize(
    ("base_url", "shown"),
    [
        ("https://h/v1?api_key=sk-1", "https://h/v1?api_key=***"),
        ("https://h?api-version=2&subscription-key=a%3Db&x=1", "https://h?api-version=2&subscription-key=***&x=1"),
        ("https://h/key=1?v=2", "https://h/key=1?v=2"),
        ("https://user:pass@h/v1", "https://***@h/v1"),
        ("https://h/v1?mail=a@b", "https://h/v1?mail=a@b"),
    ],
)
def test_keys_in_the_query_are_not_recorded(base_url: str, shown: str) -> None:
    assert without_secrets(base_url) == shown
