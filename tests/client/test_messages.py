import json
import string
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from assay.client.messages import LIMIT, Redactor

KEYS = st.text(alphabet=string.ascii_letters + string.digits + "-_.+/= \"\\'", min_size=4, max_size=60).map(str.strip)


@given(KEYS.filter(lambda key: len(key) >= 4), st.text(max_size=400), st.text(max_size=50))
def test_the_key_never_shows_in_any_form(key: str, before: str, after: str) -> None:
    redact = Redactor(key)
    for form in (key, json.dumps(key)[1:-1], quote(key, safe="")):
        shown = redact(before + form + after)
        assert key not in shown
        assert form not in shown
    assert key not in repr(redact)


@given(st.text())
def test_messages_are_short_single_lines_that_any_file_can_hold(text: str) -> None:
    shown = Redactor(None)(text)
    assert len(shown) <= LIMIT
    assert len(shown.splitlines()) <= 1
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in shown)
    shown.encode()


def test_half_a_key_does_not_survive_the_cut() -> None:
    key = "sk-" + "abcdef" * 10
    assert "abcdef" not in Redactor(key)("x" * (LIMIT - 10) + key)


def test_placeholder_keys_do_not_garble_messages() -> None:
    assert Redactor("x")("maximum context exceeded") == "maximum context exceeded"
