"""What the package offers is pinned."""

from __future__ import annotations

import assay.identity


def test_exported_names() -> None:
    assert assay.identity.__all__ == [
        "Candidate",
        "Check",
        "DivergenceOptions",
        "DivergenceReport",
        "Finding",
        "Fingerprint",
        "Identity",
        "IdentityOptions",
        "IdentityResult",
        "NamedPrompt",
        "Outcome",
        "PromptDifference",
        "PromptRecord",
        "Reference",
        "SelfcheckOptions",
        "SelfcheckReport",
        "Visit",
        "WatchOptions",
        "check_fingerprint",
        "check_itself",
        "diverge",
        "read_fingerprint",
        "read_reference",
        "take_fingerprint",
        "watch",
        "write_fingerprint",
        "write_reference",
    ]
    for name in assay.identity.__all__:
        assert getattr(assay.identity, name) is not None
