"""Makes servers' messages safe to show: one line, short, without control characters and secrets."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

LIMIT = 300
"""Characters that a message may have."""

_BLANK = "***"
# Shorter "keys" are placeholders for servers that need none; blanking every "x" would only garble the message.
_SHORTEST_SECRET = 4
# Answers are scored, so only long keys are blanked there: "EMPTY" is a key, but also a word.
_SHORTEST_IN_ANSWERS = 16
# C0 and C1 controls, line and paragraph separators, and the marks that reorder text on a terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_SPACES = re.compile(r"\s{2,}")


class Redactor:
    """Blanks one endpoint's key and other secrets in messages. Its repr does not show them."""

    __slots__ = ("_forms", "_forms_in_answers")

    def __init__(self, *secrets: str | None) -> None:
        forms = {
            form
            for secret in secrets
            if secret is not None and len(secret) >= _SHORTEST_SECRET
            for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
        }
        self._forms = sorted(forms, key=len, reverse=True)
        self._forms_in_answers = [form.encode() for form in self._forms if len(form) >= _SHORTEST_IN_ANSWERS]

    def __repr__(self) -> str:
        return "Redactor()"

    def __call__(self, text: str) -> str:
        """The text on one line of at most ``LIMIT`` characters, with the secret blanked."""
        # Before the cut, which might leave half a secret; and again once spaces are collapsed.
        text = self._blank(text)
        text = self._blank(_SPACES.sub(" ", _CONTROL.sub(" ", text[: 4 * LIMIT])).strip())
        return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"

    def in_body(self, body: bytes) -> bytes:
        """A reply's body with secrets blanked that are too long to be a word of an answer."""
        for form in self._forms_in_answers:
            body = body.replace(form, _BLANK.encode())
        return body

    def in_answer(self, text: str | None) -> str | None:
        """As :meth:`in_body`, for a part of an answer."""
        return text and self.in_body(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _blank(self, text: str) -> str:
        for form in self._forms:
            text = text.replace(form, _BLANK)
        return text
