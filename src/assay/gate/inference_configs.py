"""Imports accuracy configurations from the CI of inference projects.

Three kinds of YAML are supported: vLLM's for lm-eval (``model_name``, ``tasks`` with ``metrics``), vLLM's for its own
GSM8K script (``accuracy_threshold``), and the ``lm_eval:`` part of its perf-eval workloads. A text file may list
several of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay._util.paths import why_unreadable
from assay.errors import FileFormatError, SpecificationError, UnsupportedTaskError
from assay.tasks.gen_kwargs import settings_of

USUAL_RTOL = 0.08
"""vLLM's default, relative to the score."""
USUAL_TOLERANCE = 0.08
"""Default of vLLM's GSM8K script, in points of the score."""
_USUAL_CONFIDENCE = 0.95
_GSM8K_QUESTIONS = 1319
_OF_THE_SERVER = frozenset(
    {
        "backend",
        "batch_size",
        "dtype",
        "enforce_eager",
        "env",
        "env_vars",
        "kv_cache_dtype",
        "load_format",
        "max_model_len",
        "moe_backend",
        "quantization",
        "server_args",
        "startup_max_wait_seconds",
        "tensor_parallel_size",
        "tp_size",
        "trust_remote_code",
    }
)
"""Settings for starting the server, which a gate does not do."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """One score that must be reached."""

    task: str
    metric: str
    min: float | None
    """None where the configuration demands nothing."""
    value: float | None = None
    """The score of a healthy model, if the configuration states it."""
    remark: str = ""
    """How the check differs from the configuration."""


@dataclass(frozen=True, kw_only=True)
class ImportedGate:
    """A configuration, as the parts of a policy."""

    name: str
    model: str
    demands: tuple[Demand, ...]
    is_chat: bool = False
    model_fields: dict[str, Any] = field(default_factory=dict)
    """Fields of :class:`assay.ModelSpec`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Fields of :class:`assay.TaskOptions`."""
    alpha: float | None = None
    remarks: tuple[str, ...] = ()
    """Which settings are not in the policy, or mean something else there."""


def read_configs(path: str | Path) -> list[ImportedGate]:
    """Read a configuration, or a list of them.

    Args:
        path: a YAML file; or a text file with one path on each line, relative to its folder.

    Raises:
        FileFormatError: a file cannot be read, or is of no supported kind.
        SpecificationError: a value is not valid.
        UnsupportedTaskError: the configuration asks for images.
    """
    file = Path(path)
    if file.suffix not in (".yaml", ".yml"):
        lines = (line.partition("#")[0].strip() for line in _text(file).splitlines())
        return [gate for line in lines if line for gate in read_configs(file.parent / line)]
    config = _document(file)
    if "lm_eval" in config:
        return _workload(config, file.stem)
    if "accuracy_threshold" in config:
        return [_gsm8k(config, file)]
    if "tasks" in config and "model_name" in config:
        return [_lm_eval(config, file)]
    raise FileFormatError(
        f"{file} is no configuration that is known here: it has neither tasks and model_name, nor accuracy_threshold, "
        "nor lm_eval"
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {file}: {why_unreadable(error)}") from None


def _document(file: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(_text(file))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FileFormatError(f"cannot read {file} as YAML: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(document, dict):
        raise FileFormatError(f"{file} holds no settings by name")
    return document


def _lm_eval(config: dict[str, Any], file: Path) -> ImportedGate:
    """VLLM's ``.buildkite/lm-eval-harness/configs``: a score must reach ``value`` less ``rtol`` of it."""
    if "vlm" in str(config.get("backend", "")):
        raise UnsupportedTaskError(f"{file}: backend {config['backend']} asks about images, which is not supported")
    rtol = _number(config, "rtol", USUAL_RTOL, file)
    by_confidence = config.get("gate") == "ci"
    demands = []
    for task in _list(config, "tasks", file):
        for metric in _list(task, "metrics", file):
            value = _number(metric, "value", None, file)
            name, remark = _metric_key(str(metric.get("name", "")))
            demands.append(
                Demand(task=str(task["name"]), metric=name, min=value * (1 - rtol), value=value, remark=remark)
            )
    remarks = _remarks_on_dropped(config, {"model_name", "tasks", "rtol", "gate", "confidence", *_OPTIONS})
    options = _options(config, file)
    if by_confidence and options.pop("limit", None) is not None:
        remarks.append(
            "gate: ci wants a lower confidence bound above the threshold; here all documents decide, and only as many "
            "are asked as that takes: there is no limit"
        )
    return ImportedGate(
        name=file.stem,
        model=str(config["model_name"]),
        demands=tuple(demands),
        is_chat=bool(config.get("apply_chat_template", False)),
        options=options,
        alpha=round(1 - _number(config, "confidence", _USUAL_CONFIDENCE, file), 6) if by_confidence else None,
        remarks=tuple(remarks),
    )


def _gsm8k(config: dict[str, Any], file: Path) -> ImportedGate:
    """VLLM's ``tests/evals/gsm8k/configs``: a share of right answers, by a script of its own."""
    value = _number(config, "accuracy_threshold", None, file)
    tolerance = _number(config, "tolerance", USUAL_TOLERANCE, file)
    questions = int(_number(config, "num_questions", _GSM8K_QUESTIONS, file))
    options: dict[str, Any] = {"num_fewshot": int(_number(config, "num_fewshot", 5, file))}
    if questions < _GSM8K_QUESTIONS:
        options["limit"] = questions
    demand = Demand(
        task="gsm8k",
        metric="exact_match,flexible-extract",
        min=round(value - tolerance, 6),
        value=value,
        remark="its script takes an answer's last number; so does this filter of lm-eval's task",
    )
    known = {"model_name", "accuracy_threshold", "tolerance", "num_questions", "num_fewshot"}
    return ImportedGate(
        name=file.stem,
        model=str(config.get("model_name", "")),
        demands=(demand,),
        options=options,
        remarks=(
            "its script writes prompts of its own, nearly those of lm-eval's gsm8k: calibrate the threshold once",
            *_remarks_on_dropped(config, known),
        ),
    )


def _workload(config: dict[str, Any], stem: str) -> list[ImportedGate]:
    """The ``lm_eval:`` part of a perf-eval workload, which demands nothing: a gate for each task."""
    part = config["lm_eval"] if isinstance(config["lm_eval"], dict) else {}
    model = str((config.get("vllm") or config.get("sglang") or {}).get("model", ""))
    shared = part.get("model_args") or {}
    gates = []
    for task in _list(part, "tasks", Path(stem)):
        arguments = {**shared, **(task.get("model_args") or {})}
        fields = {new: arguments[old] for old, new in _MODEL_FIELDS.items() if arguments.get(old) is not None}
        name = str(task["name"])
        gates.append(
            ImportedGate(
                name=f"{stem}-{name}",
                model=model,
                demands=(Demand(task=name, metric="", min=None),),
                is_chat=bool(task.get("apply_chat_template", part.get("apply_chat_template", False))),
                model_fields=fields,
                options=_options({**part, **task}, Path(stem)),
                remarks=tuple(_remarks_on_dropped(task, {"name", "model_args", *_OPTIONS})),
            )
        )
    return gates


_MODEL_FIELDS = {
    "num_concurrent": "concurrency",
    "max_length": "max_length",
    "max_gen_toks": "max_gen_toks",
    "timeout": "request_timeout",
    "max_retries": "max_attempts",
    "seed": "seed",
}
"""lm-eval's model arguments -> fields of a policy's model."""
_OPTIONS = ("limit", "num_fewshot", "gen_kwargs", "apply_chat_template", "fewshot_as_multiturn", "metadata")


def _options(config: dict[str, Any], file: Path) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name in ("limit", "num_fewshot"):
        if config.get(name) is not None:
            number = _number(config, name, None, file)
            options[name] = int(number) if number == int(number) else number
    if config.get("gen_kwargs"):
        options["gen_kwargs"] = settings_of(config["gen_kwargs"])
    if config.get("apply_chat_template") and config.get("fewshot_as_multiturn") is not None:
        options["fewshot_as_multiturn"] = bool(config["fewshot_as_multiturn"])
    if config.get("metadata"):
        options["metadata"] = config["metadata"]
    return options


def _metric_key(name: str) -> tuple[str, str]:
    if "," in name or not name:
        return name, ""
    return f"{name},none", f"'{name}' names no filter; '{name},none' is right if the task has none"


def _remarks_on_dropped(config: dict[str, Any], kept: set[str]) -> list[str]:
    """Remarks on settings that are dropped: those that start the server, and unknown ones."""
    rest = {name: value for name, value in config.items() if name not in kept}
    why = {True: "is for starting the server", False: "is not known here"}
    ordered = sorted(rest.items(), key=lambda item: item[0] not in _OF_THE_SERVER)
    return [f"{name}: {value!r} {why[name in _OF_THE_SERVER]}" for name, value in ordered]


def _number(config: dict[str, Any], name: str, usual: float | None, file: Path) -> float:
    value = config.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecificationError(f"{file}: {name} is {value!r}; it must be a number")
    return value


def _list(config: dict[str, Any], name: str, file: Path) -> list[dict[str, Any]]:
    value = config.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise FileFormatError(f"{file}: '{name}' must be a list of settings by name, and not be empty")
    if missing := [each for each in value if "name" not in each]:
        raise FileFormatError(f"{file}: an entry of '{name}' has no name: {missing[0]!r}")
    return value
