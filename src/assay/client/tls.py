"""Builds the TLS context from the certificates and keys that a specification names."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from assay._util.paths import expand_home, why_unreadable
from assay.errors import SpecificationError
from assay.types import TLS

if TYPE_CHECKING:
    import yarl


def context_for(tls: TLS, *addresses: yarl.URL | None) -> ssl.SSLContext | None:
    """The context for connections to these addresses; None if none of them uses TLS and no TLS option is set.

    Raises:
        SpecificationError: as :func:`client_context`.
    """
    is_needed = tls != TLS() or any(address is not None and address.scheme == "https" for address in addresses)
    return client_context(tls) if is_needed else None


def client_context(tls: TLS) -> ssl.SSLContext:
    """The context for connections to a server.

    Without ``ca_file`` the system's authorities are trusted, or those that ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name.

    Raises:
        SpecificationError: a file is missing or is not what it should be, or two settings contradict each other.
    """
    if tls.insecure and tls.ca_file is not None:
        raise SpecificationError("--insecure takes any certificate and --ca-file only some: choose one")
    if tls.client_key is not None and tls.client_cert is None:
        raise SpecificationError("a client key (--client-key) is of no use without its certificate (--client-cert)")
    try:
        context = ssl.create_default_context(cafile=_readable(tls.ca_file, "CA file"))
    except ssl.SSLError:
        raise SpecificationError(f"the CA file {tls.ca_file} holds no certificates in PEM format") from None
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.client_cert is not None:
        _show(context, _readable(tls.client_cert, "client certificate"), _readable(tls.client_key, "client key"))
    return context


def _show(context: ssl.SSLContext, certificate: str | None, key: str | None) -> None:
    if certificate is None:
        return
    of = f"the client certificate {certificate}" + (f" with the key {key}" if key else "")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SpecificationError(f"{of} cannot be used: the key belongs to another certificate") from None
        hint = "" if key else "; is its key in another file (--client-key)?"
        raise SpecificationError(f"{of} cannot be used: not both are there in PEM format{hint}") from None


def _no_password() -> str:
    raise SpecificationError("the client key is encrypted; give one without a passphrase")


def _readable(path: str | None, what: str) -> str | None:
    if path is None:
        return None
    file = expand_home(path)
    try:
        file.open("rb").close()
    except (OSError, ValueError) as error:
        raise SpecificationError(f"cannot read the {what} {path}: {why_unreadable(error)}") from None
    return str(file)
