"""Finds the proxy for a server in the environment, and the exceptions in ``NO_PROXY``.

``NO_PROXY`` is read as widely as any known client reads it: what goes through a proxy by mistake is prompts and keys.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.request import getproxies, proxy_bypass

import yarl

from assay.client.urls import is_host
from assay.errors import SpecificationError

_ENTRY = re.compile(
    r"(?:(?P<scheme>[a-z]+)://)?"
    r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<bare>(?:[^:/]*:){2}[^/]*)|(?P<name>[^:/]*))"
    r"(?P<length>/\d+)?(?::(?P<port>\d+))?/?"
)
"""An entry of ``NO_PROXY``: a host, ``.domain``, ``*.domain``, an address or a network, with or without a port."""
_USER = re.compile(r"^((?:[^/@]*//)?).*@")


def proxy_for(url: yarl.URL) -> yarl.URL | None:
    """The proxy that the environment names for ``url``; None if there is none, or the server is exempt.

    Raises:
        SpecificationError: it is none.
    """
    named = getproxies()
    variable = url.scheme if named.get(url.scheme) else "all"
    address = (named.get(variable) or "").strip()
    if not address or _is_exempt(url, named.get("no", "")):
        return None
    try:
        proxy = yarl.URL(address if "://" in address else f"http://{address.removeprefix('//')}")
        is_proxy = proxy.scheme in ("http", "https") and is_host(proxy.host) and proxy.port != 0
    except ValueError:
        is_proxy = False
    if not is_proxy or re.search(r"\s", address):
        shown = _USER.sub(r"\1***@", address)[:200]
        raise SpecificationError(
            f"{variable.upper()}_PROXY is {shown!r}, which is not the address of an HTTP "
            f"proxy, such as http://proxy:3128; if {url.host} needs none, name it in NO_PROXY"
        )
    return proxy


def _is_exempt(url: yarl.URL, exempt: str) -> bool:
    if proxy_bypass(url.host or "") or proxy_bypass(f"{url.host}:{url.port}"):  # includes the system's settings
        return True
    return any(_covers(entry, url) for entry in re.split(r"[,\s]+", exempt.lower()) if entry)


def _covers(entry: str, url: yarl.URL) -> bool:
    if entry == "*":
        return True
    found = _ENTRY.fullmatch(entry)
    if found is None or found["scheme"] not in (None, "all", url.scheme):
        return False
    if found["port"] is not None and int(found["port"]) != url.port:
        return False
    host = found["bracketed"] or found["bare"] or found["name"] or ""
    address = _address(url.host or "")
    return _names(host, url.raw_host or "") if address is None else _holds(host + (found["length"] or ""), address)


def _names(name: str, host: str) -> bool:
    """Whether a name is the host's own or that of its domain."""
    try:
        domain = name.lstrip("*").strip(".").encode("idna").decode()
    except UnicodeError:
        return False
    host = host.rstrip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _holds(network: str, address: IPv4Address | IPv6Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.partition("%")[0])
    except ValueError:
        return None
