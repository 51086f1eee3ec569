"""A repro bundle: the one position that shows most plainly where two servers part, for the server's developers."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.storage import write_whole
from assay._version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from assay.identity.divergence.positions import PositionDifference
    from assay.identity.divergence.run import Candidate, DivergenceReport
    from assay.identity.divergence.summary import TextDifference


def write_bundle(folder: Path, report: DivergenceReport, candidate: Candidate) -> Path:
    """Write ``bundle.json`` (everything that is known), ``ask.sh`` (one curl line) and ``ask.py`` (without Assay).

    Args:
        folder: where; made if missing.
        report: the comparison.
        candidate: one of its candidates.

    Raises:
        OutputError: it cannot be written.
    """
    text, position = _plainest(candidate)
    reference = next(each for each in report.reference.texts if each.name == text.name)
    body = _body(candidate, text, position, reference.positions[: position.index])
    found = {
        "assay": __version__,
        "reference": report.reference.name,
        "reference_software": report.reference.software,
        "reference_asked": report.reference.created,
        "candidate": candidate.server,
        "candidate_software": candidate.software,
        "candidate_way": candidate.way,
        "prompt": text.prompt,
        "prompt_tokens": [text.reference_prompt_tokens, text.candidate_prompt_tokens],
        "answer": [{"token": each.token, "id": each.id} for each in reference.positions],
        "first_divergent_index": position.index,
        "difference": msgspec.to_builtins(position),
        "reference_top": msgspec.to_builtins(reference.positions[position.index].top),
        "candidate_top": msgspec.to_builtins(text.candidate_tops[position.index])
        if position.index < len(text.candidate_tops)
        else [],
        "request": body,
    }
    write_whole(folder / "bundle.json", json.dumps(found, indent=1, ensure_ascii=False).encode() + b"\n")
    address = candidate.server.rpartition(" at ")[2].rstrip("/")
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    line = (
        f"curl -s {shlex.quote(address + path)} -H 'Content-Type: application/json' "
        f'-H "Authorization: Bearer $OPENAI_API_KEY" -d {shlex.quote(json.dumps(body))}'
    )
    write_whole(folder / "ask.sh", f"{line}\n".encode())
    write_whole(folder / "ask.py", _PROGRAM.format(url=address + path, body=json.dumps(json.dumps(body))).encode())
    return folder


def _plainest(candidate: Candidate) -> tuple[TextDifference, PositionDifference]:
    """The first divergence with the largest margin; without any, the position with the largest divergence."""
    firsts = [(text, first) for text in candidate.texts if (first := text.first_divergence) is not None]
    if firsts:
        return max(firsts, key=lambda each: each[1].margin or 0.0)
    every = [(text, position) for text in candidate.texts for position in text.positions]
    return max(every, key=lambda each: each[1].divergence)


def _body(candidate: Candidate, text: TextDifference, position: PositionDifference, before: Any) -> dict[str, Any]:
    """What asks the candidate for the token at that position: after the prompt's ids where they are known."""
    model = candidate.server.partition(" at ")[0]
    asked = {"model": model, "max_tokens": 1, "temperature": 0, "logprobs": 20}
    ids = [each.id for each in before]
    if text.candidate_ids is not None and None not in ids:
        return {**asked, "prompt": [*text.candidate_ids, *ids]}
    if isinstance(text.prompt, str):
        return {**asked, "prompt": text.prompt + "".join(each.token for each in before)}
    chat = {"messages": text.prompt, "logprobs": True, "top_logprobs": 20, "max_tokens": position.index + 1}
    return {**asked, **chat}


_PROGRAM = """import json
import os
import urllib.request

body = {body}
headers = {{"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("OPENAI_API_KEY", "")}}
request = urllib.request.Request("{url}", body.encode(), headers)
with urllib.request.urlopen(request) as reply:
    choice = json.load(reply)["choices"][0]
print(choice.get("text") or choice.get("message"))
print(json.dumps(choice["logprobs"], indent=1))
"""
