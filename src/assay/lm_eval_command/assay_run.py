"""Writes the ``assay run`` command that does the same as an ``lm_eval run``."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from assay.types import TLS, ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAMES = {"seed": "request-seed"}
"""Fields whose option has another name."""
_WRITTEN_SEPARATELY = frozenset(
    {"base_url", "model", "replicas", "endpoint", "tls", "samples", "gen_kwargs", "metadata", "headers"}
)


def assay_run(specification: Specification) -> str:
    """The command, quoted for a shell, without checks and without ``--fresh`` or ``--retry-failed``."""
    return shlex.join(["assay", "run", *_words(specification)])


def _words(specification: Specification) -> Iterator[str]:
    model, options = specification.model, specification.options
    yield ",".join(specification.tasks)
    yield from ("--base-url", model.base_url, "--model", model.model)
    if model.endpoint == "completions":
        yield "--completions"
    usual_model = ModelSpec(base_url="", model="")
    for given, usual in ((model, usual_model), (model.tls, TLS()), (options, TaskOptions())):
        for name in given.__struct_fields__:
            value = getattr(given, name)
            if name not in _WRITTEN_SEPARATELY and value != getattr(usual, name):
                yield from _option(name, value)
    for name, value in model.headers.items():
        yield from ("--header", f"{name}={value}")
    if options.samples is not None:
        yield from ("--samples", json.dumps(options.samples))
    for name, settings in (("--gen-kwargs", options.gen_kwargs), ("--metadata", options.metadata)):
        if settings:
            yield from (name, json.dumps(settings, ensure_ascii=False))
    yield from ("--output-dir", specification.output_dir)
    if not specification.log_samples:
        yield "--no-log-samples"


def _option(name: str, value: Any) -> tuple[str, ...]:
    option = _NAMES.get(name, name.replace("_", "-"))
    if isinstance(value, bool):
        return (f"--{option}" if value else f"--no-{option}",)
    is_whole = isinstance(value, float) and value.is_integer()
    return f"--{option}", str(int(value) if is_whole else value)
