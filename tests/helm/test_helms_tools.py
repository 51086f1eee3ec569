"""The real helm-summarize reads what is written here."""

from __future__ import annotations

import json
from pathlib import Path

from assay.helm.tokenization import EncoderService
from tests.helm.suites import write_summarized_suite


def test_helm_summarize_finds_our_numbers(tmp_path: Path, tokenizer: EncoderService) -> None:
    suite = write_summarized_suite(tmp_path, tokenizer)
    (table,) = json.loads((suite / "groups" / "a_group.json").read_bytes())
    assert [[cell["value"] for cell in row] for row in table["rows"]] == [["m/m", 0.75]]
