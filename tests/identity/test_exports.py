"""What the package offers is pinned."""

from __future__ import annotations

import assay.identity


def test_exported_names() -> None:
    assert assay.identity.__all__ == [
        "Check",
        "Finding",
        "Fingerprint",
        "Identity",
        "IdentityOptions",
        "IdentityResult",
        "Outcome",
        "PromptDifference",
        "PromptRecord",
        "SelfcheckOptions",
        "SelfcheckReport",
        "check_fingerprint",
        "check_itself",
        "read_fingerprint",
        "take_fingerprint",
        "write_fingerprint",
    ]
    for name in assay.identity.__all__:
        assert getattr(assay.identity, name) is not None
