"""Faults of TLS connections, with messages that say what to do."""

from __future__ import annotations

import ssl

import msgspec

from assay.client.retry import Fault, Retryability, os_reason
from assay.types import FailureCause

_SPEAKS_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG"})
_NO_COMMON_VERSION = frozenset(
    {"UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION", "WRONG_SSL_VERSION"}
)
_NO_SUCH_HOST = frozenset({"TLSV1_UNRECOGNIZED_NAME", "UNRECOGNIZED_NAME"})
_WANTS_CERTIFICATE = "does it want a certificate of yours, or another one (--client-cert)?"
_ABOUT_OUR_CERTIFICATE = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "HANDSHAKE_FAILURE")
"""In the names of the alerts of a server that wants a client certificate, or does not trust the one it got."""


def handshake_fault(error: Exception, peer: str) -> Fault:
    """The fault of a TLS handshake that failed.

    Args:
        error: what the handshake raised.
        peer: the other side, as the subject of a sentence: the server, or its proxy.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _final(
            f"{peer}'s certificate is not trusted: {error.verify_message}; "
            "name the file of its authority (--ca-file), or take any certificate (--insecure)"
        )
    if isinstance(error, ConnectionAbortedError):  # asyncio's, when the time is up
        message = f"{peer} is connected but does not answer in TLS: should the address begin with http://?"
        return Fault(FailureCause.UNREACHABLE, message, Retryability.SERVER_DOWN)
    reason = _reason(error)
    if reason in _SPEAKS_NO_TLS:
        return no_tls_fault(peer)
    if reason in _NO_COMMON_VERSION:
        return _final(f"{peer} speaks no version of TLS that is taken here (1.2 or later): {_words(error)}")
    if reason in _NO_SUCH_HOST:
        return _final(f"{peer} has no certificate for the host's name: {_words(error)}")
    if _is_about_certificate(reason):
        return _final(_refused(error, peer))
    return Fault(FailureCause.UNREACHABLE, f"{peer} ended the TLS handshake: {_words(error)}", Retryability.SERVER_DOWN)


def no_tls_fault(peer: str) -> Fault:
    """The fault of a TLS connection to a peer that is known not to speak TLS."""
    return _final(f"{peer} does not speak TLS at this port: should the address begin with http://?")


def tls_fault() -> Fault:
    """The fault of a plain connection to a server that is known to speak TLS."""
    return _final("the server speaks TLS at this port: should the address begin with https://?")


def lost_connection_fault(error: ssl.SSLError) -> Fault:
    """The fault of a TLS connection that ended before a reply came.

    TLS 1.3 tells a client only then that its certificate is missing.
    """
    if _is_about_certificate(_reason(error)):
        return _final(_refused(error, "the server"))
    message = f"the connection closed before a reply came: TLS failed: {_words(error)}"
    return Fault(FailureCause.RESET, message, Retryability.UNSURE)


def wordless_fault(fault: Fault) -> Fault:
    """The fault of a TLS connection that was closed without alert or reply, as asyncio's servers do (vLLM, uvicorn)."""
    return msgspec.structs.replace(fault, message=f"{fault.message}; {_WANTS_CERTIFICATE}")


def _final(message: str) -> Fault:
    return Fault(FailureCause.UNREACHABLE, message, Retryability.NO)


def _refused(error: Exception, peer: str) -> str:
    return f"{peer} refused the TLS connection ({_words(error)}); {_WANTS_CERTIFICATE}"


def _is_about_certificate(reason: str) -> bool:
    return "ALERT" in reason and any(part in reason for part in _ABOUT_OUR_CERTIFICATE)


def _reason(error: Exception) -> str:
    return (error.reason or "") if isinstance(error, ssl.SSLError) else ""


def _words(error: Exception) -> str:
    """OpenSSL's message. Its error numbers overlap with errno, so ``os.strerror`` would give a wrong one."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return os_reason(error) if str(error) else "the connection was closed"
