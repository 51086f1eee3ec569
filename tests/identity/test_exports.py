"""What the package offers is pinned."""

from __future__ import annotations

import assay.identity


def test_exported_names() -> None:
    assert assay.identity.__all__ == [
        "Fingerprint",
        "Identity",
        "IdentityOptions",
        "IdentityResult",
        "PromptDifference",
        "PromptRecord",
        "check_fingerprint",
        "read_fingerprint",
        "take_fingerprint",
        "write_fingerprint",
    ]
    for name in assay.identity.__all__:
        assert getattr(assay.identity, name) is not None
