"""Writes the schema that tells ``helm-summarize`` which statistics of the runs to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay._util.storage import write_error
from assay.helm.metrics.registry import LM_EVAL_SCORES
from assay.helm.run_directory import RUN_SPEC, read_run_spec
from assay.helm.structs import dump_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA = "schema_assay.yaml"
"""The file for ``helm-summarize --schema-path``."""


def write_schema(suite: Path, path: Path) -> None:
    """Write the schema of all runs of a suite that have lm-eval's metrics, as JSON, which is valid YAML.

    Args:
        suite: the folder of the runs' directories.
        path: where to write the schema.

    Raises:
        FileFormatError: a run specification there is damaged.
        OutputError: the file cannot be written.
    """
    groups: dict[str, tuple[Sequence[str], str]] = {}
    for spec_path in sorted(suite.glob(f"*/{RUN_SPEC}")):
        run_spec = read_run_spec(spec_path)
        for spec in run_spec.metric_specs:
            if spec.class_name == LM_EVAL_SCORES:
                groups[run_spec.groups[0]] = spec.args["names"], spec.args["split"]
    names = dict.fromkeys(name for listed, _ in groups.values() for name in listed)
    schema = {
        "metrics": [{"name": name, "display_name": name, "description": f"lm-eval's {name}"} for name in names],
        "perturbations": [],
        "metric_groups": [_metric_group(task, listed) for task, (listed, _) in groups.items()],
        "run_groups": [_run_group(task, listed, split) for task, (listed, split) in groups.items()],
    }
    try:
        path.write_bytes(dump_json(schema))
    except OSError as error:
        raise write_error(f"{path} cannot be written", error) from None


def _metric_group(task: str, names: Sequence[str]) -> dict[str, Any]:
    matchers = [{"name": name, "split": "${main_split}"} for name in names]
    return {"name": f"{task}_scores", "display_name": "Scores", "metrics": matchers}


def _run_group(task: str, names: Sequence[str], split: str) -> dict[str, Any]:
    return {
        "name": task,
        "display_name": task,
        "description": f"The task {task} of lm-evaluation-harness.",
        "metric_groups": [f"{task}_scores"],
        "environment": {"main_name": names[0], "main_split": split},
        "taxonomy": {"task": "?", "what": "?", "when": "?", "who": "?", "language": "?"},
    }
