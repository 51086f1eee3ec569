"""What published quantisations of a known model do to its probabilities: a scale for a divergence."""

from __future__ import annotations

_MARKS = (
    (0.0014, "q8_0"),
    (0.0055, "q6_K"),
    (0.011, "q5_K_M"),
    (0.031, "q4_K_M"),
    (0.072, "q4_0"),
    (0.10, "q3_K_M"),
    (0.45, "q2_K"),
)
"""Mean divergence of llama.cpp's quantisations of Llama-3-8B from 16-bit weights, over whole texts, as published with
its ``--kl-divergence``."""


def beside_published_marks(mean: float) -> str:
    """Between which marks a mean divergence, in nats, lies; a clause."""
    smaller = [name for mark, name in _MARKS if mark <= mean]
    larger = [name for mark, name in _MARKS if mark > mean]
    between = (
        f"between {smaller[-1]} and {larger[0]}"
        if smaller and larger
        else f"more than {smaller[-1]}"
        if smaller
        else f"less than {larger[0]}"
    )
    return f"for scale: {between} of an 8-billion-parameter Llama (llama.cpp's quantisations; other models differ)"
