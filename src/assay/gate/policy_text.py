"""Writes an imported gate as TOML, with a comment wherever it differs from the configuration it was made from."""

from __future__ import annotations

import json
import math
import textwrap
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.gate.inference_configs import Demand, ImportedGate

_WIDTH = 100
_USUAL_ADDRESS = "http://localhost:8000"
_MARGIN = 0.03


def policy_text(gate: ImportedGate, base_url: str | None = None) -> str:
    """The policy, as TOML.

    Args:
        gate: the imported gate.
        base_url: address of the server; None: the usual one of an engine on this machine.
    """
    return "\n".join(_lines(gate, base_url or _USUAL_ADDRESS)) + "\n"


def _lines(gate: ImportedGate, base_url: str) -> Iterator[str]:
    yield from _comment(f"Made from {gate.name}. See what each check can tell: assay gate FILE --explain")
    for remark in gate.remarks:
        yield from _comment(f"- {remark}")
    yield f"alpha = {gate.alpha or 0.01:g}  # chance of a wrong pass, and of a wrong fail, of all checks together"
    if gate.options:
        yield from ("", "[options]")
        for name, value in gate.options.items():
            yield f"{name} = {_toml(value)}"
            if name == "limit":
                yield from _comment("The first documents of each task, as there. Without it all decide, and only as")
                yield from _comment("many are asked, in random order, as that takes.")
    yield from ("", "[models.main]", f"base_url = {_toml(base_url)}", f"model = {_toml(gate.model)}")
    yield f'endpoint = "{"chat" if gate.is_chat else "completions"}"'
    for name, value in gate.model_fields.items():
        yield f"{name} = {_toml(value)}"
    for demand in gate.demands:
        yield from ("", "[[checks]]", f"task = {_toml(demand.task)}")
        yield from _demand(demand, gate.options.get("limit"))


def _demand(demand: Demand, documents: float | None) -> Iterator[str]:
    if demand.min is None:
        yield from _comment("The configuration demands nothing. Make a run of a healthy build the baseline first, and")
        yield from _comment(f"name the metric: assay run {demand.task} … ; assay baseline save RESULTS --output …")
        yield 'metric = "exact_match,strict-match"'
        yield f'baseline = "baselines/{demand.task}.json"'
        yield f"margin = {_MARGIN}"
        return
    yield f"metric = {_toml(demand.metric)}"
    if demand.remark:
        yield from _comment(demand.remark)
    yield f"min = {demand.min:.6g}"
    if demand.value is not None:
        yield from _comment(_what_it_sees(demand, documents))


def _what_it_sees(demand: Demand, documents: float | None) -> str:
    """A comment on how often chance alone exceeds the tolerance."""
    value, threshold = demand.value or 0.0, demand.min or 0.0
    words = f"{value:g} less its tolerance."
    if value == threshold:
        return f"{value:g}, without tolerance: a model of that very score is below it in every second run."
    if not (documents and documents >= 1 and 0 < value < 1):
        return words
    error = math.sqrt(value * (1 - value) / documents)
    below = NormalDist().cdf((threshold - value) / error)
    return (
        f"{words} A model whose true score is {value:g} is below it in {_per_cent(below)} of runs of {documents:g} "
        "documents, by chance alone."
    )


def _per_cent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 else "less than 0.1%"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), _WIDTH, initial_indent="# ", subsequent_indent="#   ")


def _toml(value: Any) -> str:
    """A value as TOML; it has one of JSON's types."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(name)} = {_toml(inner)}' for name, inner in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return _text(str(value))


def _text(text: str) -> str:
    """A basic string; TOML does not allow DEL in it, JSON does."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else _text(name)
