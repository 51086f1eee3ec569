"""Small tasks of the tests' own: no data set of the hub is needed to have one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.tasks.library import load_tasks
from assay.tasks.patches import datasets_library
from assay.types import TaskOptions

TRAIN = [{"q": f'{n} × {n}, said "{chr(0x1F600 + n)}" →', "a": str(n * n), "n": n} for n in range(8)]
TEST = [{"q": f"{n} + {n} = ?\x7f\u2028\t\\ é", "a": str(2 * n), "n": n} for n in range(10)]

CONFIG: dict[str, Any] = {
    "task": "small",
    "dataset_path": "json",
    "test_split": "test",
    "fewshot_split": "train",
    "output_type": "generate_until",
    "doc_to_text": "Q: {{q}}\nA:",
    "doc_to_target": "{{a}}",
    "num_fewshot": 3,
    "fewshot_config": {"sampler": "first_n"},
    "generation_kwargs": {"until": ["\n", "Q:"], "temperature": 0.0, "max_gen_toks": 7, "do_sample": False},
    "metric_list": [{"metric": "exact_match", "ignore_case": True, "ignore_punctuation": True}],
    "filter_list": [
        {"name": "number", "filter": [{"function": "regex", "regex_pattern": "(\\d+)"}, {"function": "take_first"}]},
        {"name": "whole", "filter": [{"function": "take_first"}]},
    ],
}


class Call:
    """A function of the task's own Python file, for a YAML value."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"!function {self.name}"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    pass


_Dumper.add_representer(Call, lambda dumper, call: dumper.represent_scalar("!function", f"own.{call.name}"))

MakeTask = Callable[..., Any]


@pytest.fixture
def make_task(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> MakeTask:
    """Loads :data:`CONFIG` with changes; None removes a key. `python` is the task's own module, see :class:`Call`.

    `extra` is added to every row.
    """
    monkeypatch.setenv("ASSAY_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "library-cache"))
    monkeypatch.setattr(datasets_library, "_accepts_connection", lambda endpoint: False)
    numbers = iter(range(100))

    def make(
        python: str = "",
        rows: list[dict[str, Any]] = TEST,
        extra: dict[str, Any] | None = None,
        options: TaskOptions | None = None,
        **changes: Any,
    ) -> Any:
        folder = tmp_path / f"task-{next(numbers)}"
        folder.mkdir()
        files = {"train": TRAIN, "test": rows}
        for name, content in files.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(row | (extra or {})) + "\n" for row in content))
        (folder / "own.py").write_text(python)
        paths = {name: str(folder / f"{name}.jsonl") for name in files}
        config = {**CONFIG, "dataset_kwargs": {"data_files": paths}, **changes}
        kept = {key: value for key, value in config.items() if value is not None}
        (folder / "small.yaml").write_text(yaml.dump(kept, Dumper=_Dumper, sort_keys=False))
        loaded = load_tasks([str(folder / "small.yaml")], options or TaskOptions(), {})
        return loaded.tasks["small"]

    return make
