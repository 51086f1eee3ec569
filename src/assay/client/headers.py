"""The headers of every request that Assay sends, for scores or for a probe."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from assay.client.api_key import key_source, refuse_unsendable
from assay.client.messages import Redactor
from assay.client.user_headers import header_values, secrets_among

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.types import ModelSpec


class RequestHeaders(NamedTuple):
    """The headers of every request to a server, and their secrets."""

    fields: Mapping[str, str]
    redact: Redactor
    """Blanks the headers' secrets in whatever the server sends."""


def request_headers(spec: ModelSpec, api_key: str | None, *, is_probe: bool = False) -> RequestHeaders:
    """The headers of every request to the servers of `spec`.

    Args:
        spec: names where the key is from, for messages.
        api_key: sent as bearer token; shown nowhere.
        is_probe: mark the requests as a probe's, which are not scored.

    Raises:
        SpecificationError: the key or a header cannot be sent.
    """
    key = (api_key or "").strip()
    refuse_unsendable(key, key_source(spec))
    # lm-eval sends the header without a key too.
    by_key = {"api-key": key} if spec.dialect == "azure" else {"Authorization": f"Bearer {key}"}
    fields = {**by_key, "Content-Type": "application/json"}
    if is_probe:
        fields["X-Assay-Probe"] = "1"
    given = header_values(spec.headers)
    named = {name.lower() for name in given}
    kept = {name: value for name, value in fields.items() if name.lower() not in named}
    sent = {name: value for name, value in given.items() if value}
    return RequestHeaders({**kept, **sent}, Redactor(key, *secrets_among(given, spec.headers)))
