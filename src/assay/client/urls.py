"""Turns a user's base URL into the URLs of a server's endpoints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit, urlunsplit

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from assay.types import EndpointKind

_ENDPOINT_PATHS: dict[EndpointKind, str] = {"chat": "/chat/completions", "completions": "/completions"}
_KNOWN_ENDINGS = (*_ENDPOINT_PATHS.values(), "/models")
# "/v1" almost everywhere; some gateways number their OpenAI-compatible part otherwise ("/v3", "/v1beta").
_LONGEST_SHOWN = 200
_SECRET_PARAMETER = re.compile(r"([?&][^=&#]*(?:key|token|secret|passw|auth|sig|code)[^=&#]*=)[^&#]*", re.IGNORECASE)
_NOT_IN_URLS = re.compile(r"[\s\x00-\x1f\x7f]")
_NOT_IN_HOSTS = re.compile(r"[\\<>\"^`{|}]")
_USER = re.compile(r"//[^?#]*@")
_VERSION = re.compile(r"/v\d+(?:alpha|beta)?\d*(?=/|$)")


class Reading(NamedTuple):
    """The addresses of a server's endpoints."""

    chat: str
    completions: str
    models: str


def endpoint_url(base_url: str, endpoint: EndpointKind) -> str:
    """The URL to post requests to, by the likeliest of the :func:`readings` of ``base_url``.

    Raises:
        SpecificationError: ``base_url`` is not http(s) with a host.
    """
    first = readings(base_url)[0]
    return first.chat if endpoint == "chat" else first.completions


def models_url(base_url: str) -> str:
    """The URL of the list of models, by the likeliest of the :func:`readings` of ``base_url``.

    Raises:
        SpecificationError: ``base_url`` is not http(s) with a host.
    """
    return readings(base_url)[0].models


def readings(base_url: str) -> list[Reading]:
    """The endpoint URLs that a base URL may mean, the likeliest first.

    The base URL may be the server's root, end in ``/v1`` (or another version), or be an endpoint's full URL; a slash
    may follow. A query string is kept. If it ends in neither a version nor an endpoint, there are two readings: with
    ``/v1`` first, or without it first if a version is in the middle, as in ``/v1beta/openai``.

    Raises:
        SpecificationError: ``base_url`` is not http(s) with a host.
    """
    parts = _split(base_url)
    path, was_full = _without_endpoint(parts.path)
    versions = [""]
    if not was_full and not _VERSION.search(path):
        versions = ["/v1", ""]
    elif not was_full and not _ends_in_version(path):
        versions = ["", "/v1"]

    def address(version: str, ending: str) -> str:
        return urlunsplit((parts.scheme, parts.netloc, path + version + ending, parts.query, ""))

    return [
        Reading(
            address(version, _ENDPOINT_PATHS["chat"]),
            address(version, _ENDPOINT_PATHS["completions"]),
            address(version, "/models"),
        )
        for version in versions
    ]


def server_root(base_url: str) -> str:
    """The server's URL without version, endpoint, query and trailing slash; ``/health`` is appended to it.

    Raises:
        SpecificationError: ``base_url`` is not http(s) with a host.
    """
    parts = _split(base_url)
    path, _ = _without_endpoint(parts.path)
    version = _ends_in_version(path)
    return urlunsplit((parts.scheme, parts.netloc, path.removesuffix(version), "", ""))


def without_secrets(base_url: str) -> str:
    """The URL without a user, and with query parameters that look like a key (``?api_key=…``) blanked."""
    return _SECRET_PARAMETER.sub(r"\1***", _USER.sub("//***@", base_url))


def _without_endpoint(path: str) -> tuple[str, bool]:
    """The path without the endpoint at its end, and whether it had one."""
    path = path.rstrip("/")
    for ending in _KNOWN_ENDINGS:
        if path.endswith(ending):
            return path.removesuffix(ending), True
    return path, False


def _ends_in_version(path: str) -> str:
    """The version at the end of a path; empty if there is none."""
    *_, last = [found[0] for found in _VERSION.finditer(path)] or [""]
    return last if path.endswith(last) else ""


def _split(base_url: str) -> SplitResult:
    text = base_url.strip()
    # Credentials in a URL would reach logs and results, so the URL itself is not repeated where it holds any.
    if "@" in text.partition("?")[0]:
        raise SpecificationError(
            "the base URL holds a user name or password; give the key by environment variable instead"
        )
    try:
        parts = urlsplit(text)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        raise SpecificationError(f"the base URL {_shown(text)} is not a URL, or its port is no port") from None
    if parts.scheme not in ("http", "https"):
        raise SpecificationError(f"the base URL {_shown(text)} must start with http:// or https://")
    is_clean = not _NOT_IN_URLS.search(text) and not _NOT_IN_HOSTS.search(parts.netloc)
    if not (is_clean and port_is_valid and is_host(parts.hostname)):
        raise SpecificationError(f"the base URL {_shown(text)} names no valid host and port")
    return parts._replace(path=re.sub("^/+", "/", parts.path))


def is_host(name: str | None) -> bool:
    """Whether it can be looked up, be the answer what it may."""
    try:
        return bool(name) and bool((name or "").encode("idna").decode("idna"))
    except UnicodeError:  # an empty label, one that is too long, or one that only looks like an encoded one
        return False


def _shown(text: str) -> str:
    if "@" in text:
        return "(not repeated here, for it may hold a password)"
    text = without_secrets(text)
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…")
