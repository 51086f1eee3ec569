"""What lm-eval writes about one run, read back and compared field by field."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SECTIONS_BY_TASK = (
    "results",
    "groups",
    "group_subtasks",
    "versions",
    "n-shot",
    "n-samples",
    "higher_is_better",
    "task_hashes",
)
SECTIONS = (
    *SECTIONS_BY_TASK,
    "lm_eval_version",
    "tokenizer_pad_token",
    "tokenizer_eos_token",
    "tokenizer_bos_token",
    "eot_token_id",
    "max_length",
    "model_source",
    "model_name",
    "model_name_sanitized",
    "system_instruction",
    "system_instruction_sha",
    "fewshot_as_multiturn",
    "chat_template",
    "chat_template_sha",
)
"""All but the run's own circumstances: date, duration, host, git hashes, and the server's address in `config`."""

_SAMPLES_NAME = re.compile(r"samples_(.*)_\d{4}-\d\d-\d\dT.*\.jsonl")


@dataclass(frozen=True)
class RunFiles:
    """One run's results file and the sample files beside it."""

    results: dict[str, Any]
    samples: dict[str, list[dict[str, Any]]]
    """By task, the lines."""

    @classmethod
    def read(cls, results_file: str | Path) -> RunFiles:
        """Read `results_file` and the sample files of the same time."""
        path = Path(results_file)
        stamp = path.stem.removeprefix("results_")
        samples = {}
        for file in path.parent.glob(f"samples_*_{stamp}.jsonl"):
            name = _SAMPLES_NAME.fullmatch(file.name)
            assert name is not None, file
            samples[name[1]] = read_lines(file)
        return cls(json.loads(path.read_text(encoding="utf-8")), samples)


@dataclass(frozen=True)
class Difference:
    """One place where two runs' files say different things."""

    task: str | None
    """The task or group; None where it concerns the whole run."""
    place: str
    theirs: str
    ours: str

    def __str__(self) -> str:
        return f"{self.place}: lm-eval has {self.theirs[:200]}, Assay {self.ours[:200]}"


def differences(theirs: RunFiles, ours: RunFiles) -> list[Difference]:
    """Everything that differs, in SECTIONS, task configurations and sample lines; the order of keys counts, too."""
    return [*_section_differences(theirs, ours), *_sample_differences(theirs, ours)]


def comparable_configs(configs: dict[str, Any]) -> dict[str, Any]:
    """Task configurations without what depends on the machine: addresses, paths, concurrency, time-outs."""
    text = re.sub(r" at 0x[0-9a-f]+", "", json.dumps(configs))
    comparable: dict[str, Any] = json.loads(text)
    for config in comparable.values():
        for key in ("base_url", "num_concurrent", "timeout", "config_source", "tokenizer"):
            config["metadata"].pop(key, None)
        if config["metadata"].get("tokenized_requests") is True:  # as it is where nothing is said
            del config["metadata"]["tokenized_requests"]
    return comparable


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def _section_differences(theirs: RunFiles, ours: RunFiles) -> Iterator[Difference]:
    for section in SECTIONS:
        their_part, our_part = (files.results.get(section, "absent") for files in (theirs, ours))
        if section in SECTIONS_BY_TASK and isinstance(their_part, dict) and isinstance(our_part, dict):
            yield from _entry_differences(section, their_part, our_part)
        elif _text(their_part) != _text(our_part):
            yield Difference(None, section, _text(their_part), _text(our_part))
    configs = [comparable_configs(files.results["configs"]) for files in (theirs, ours)]
    yield from _entry_differences("configs", *configs)


def _entry_differences(section: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[Difference]:
    for task in theirs | ours:
        their_entry, our_entry = theirs.get(task, "absent"), ours.get(task, "absent")
        if _text(their_entry) == _text(our_entry):
            continue
        if not isinstance(their_entry, dict) or not isinstance(our_entry, dict):
            yield Difference(task, section, _text(their_entry), _text(our_entry))
            continue
        yield from _field_differences(task, section, their_entry, our_entry)
    if list(theirs) != list(ours) and theirs.keys() == ours.keys():
        yield Difference(None, f"order of {section}", _text(list(theirs)), _text(list(ours)))


def _sample_differences(theirs: RunFiles, ours: RunFiles) -> Iterator[Difference]:
    for task in theirs.samples | ours.samples:
        their_lines, our_lines = theirs.samples.get(task, []), ours.samples.get(task, [])
        if len(their_lines) != len(our_lines):
            yield Difference(task, "sample lines", str(len(their_lines)), str(len(our_lines)))
        for their_line, our_line in zip(their_lines, our_lines, strict=False):
            place = f"sample {their_line['doc_id']} ({their_line['filter']})"
            yield from _field_differences(task, place, their_line, our_line)


def _field_differences(task: str, place: str, theirs: dict[str, Any], ours: dict[str, Any]) -> Iterator[Difference]:
    for field in theirs | ours:
        their_value, our_value = (_text(entry.get(field, "absent")) for entry in (theirs, ours))
        if their_value != our_value:
            yield Difference(task, f"{place}: {field}", their_value, our_value)
    if list(theirs) != list(ours) and theirs.keys() == ours.keys():
        yield Difference(task, f"{place}: order of keys", _text(list(theirs)), _text(list(ours)))


def _text(value: Any) -> str:
    return json.dumps(value)
