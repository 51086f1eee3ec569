"""From lm-eval's arguments to a specification: the same requests, scores and files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.checks.verdicts import parse_maximum, parse_minimum, parse_range, with_ranges
from assay.client.user_headers import literal
from assay.errors import SpecificationError
from assay.lm_eval_command.options import MODEL_ARGUMENTS, OPTIONS, OTHER_MODELS, Effect
from assay.tasks.tokenizer import REMOTE, TIKTOKEN, server_has_tokenizer, tokenizer_of
from assay.types import TLS, USUAL_ALPHA, EarlyStopping, EndpointKind, ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.lm_eval_command.parsing import OwnOptions, RunArguments

_ENDPOINTS: dict[str, EndpointKind] = {
    "local-chat-completions": "chat",
    "local-completions": "completions",
    "openai-chat-completions": "chat",
    "openai-completions": "completions",
}
_OPENAI_URL = "https://api.openai.com/v1"
_OPENAI_EOS = "<|endoftext|>"
_USUAL_OUTPUT = "results"
_BACKEND = "tokenizer_backend"
"""The one argument for which None is a value."""
_SEEDS = ("random_seed", "numpy_seed", "torch_seed", "fewshot_seed")


@dataclass(frozen=True)
class Translation:
    """An ``lm_eval run`` as Assay runs it."""

    specification: Specification
    remarks: tuple[str, ...]
    """About options that have no effect, or another one than expected."""
    results_name: Path | None = None
    """Where ``--output_path`` names a JSON file: to its name lm-eval adds the time."""
    show_config: bool = False
    report: bool = True


def translate(arguments: RunArguments) -> Translation:
    """The run that lm-eval would do with these arguments.

    Raises:
        SpecificationError: an option is not supported, or a value makes no sense; it says what to use instead.
    """
    config, given = arguments.config, arguments.given
    remarks = _refuse_or_remark("--", given, OPTIONS)
    if not config.tasks:
        raise SpecificationError("name at least one task (--tasks)")
    model = _model(config, remarks)
    output, results_name = _output(config.output_path)
    if not config.output_path:
        remarks.append(f"no --output_path: files go to {_USUAL_OUTPUT}/")
    own = arguments.own
    specification = Specification(
        tasks=tuple(_task_names(config.tasks)),
        model=model,
        options=_task_options(config, own),
        output_dir=output,
        log_samples=config.log_samples,
        **_judged(own),
        fresh=own.fresh,
        retry_failed=own.retry_failed,
        probe=own.probe,
        triage=own.triage,
    )
    return Translation(specification, tuple(remarks), results_name, bool(config.show_config), own.report)


def _refuse_or_remark(prefix: str, given: dict[str, Any], treatments: Any) -> list[str]:
    """Remarks on what has no effect.

    Raises:
        SpecificationError: one of them is refused, or not known here.
    """
    remarks = []
    for name, value in given.items():
        treatment = treatments.get(name)
        if treatment is None:
            raise SpecificationError(f"{prefix}{name} is an option of lm-eval that Assay does not know; leave it out")
        if treatment.effect is Effect.REFUSED:
            raise SpecificationError(f"{prefix}{name} is not supported: {treatment.words}")
        if treatment.effect is Effect.NONE:
            remarks.append(f"{prefix}{name} {value} has no effect: {treatment.words}")
    return remarks


def _task_names(tasks: str | list[str]) -> list[str]:
    texts = [tasks] if isinstance(tasks, str) else tasks
    return [name.strip() for text in texts for name in text.split(",") if name.strip()]


def _model(config: Any, remarks: list[str]) -> ModelSpec:
    endpoint = _ENDPOINTS.get(config.model)
    if endpoint is None:
        raise SpecificationError(f"--model {config.model} {OTHER_MODELS}")
    arguments = {name: value for name, value in config.model_args.items() if value is not None or name == _BACKEND}
    given = {name: value for name, value in arguments.items() if name in MODEL_ARGUMENTS}
    remarks += _refuse_or_remark("--model_args ", given, MODEL_ARGUMENTS)
    if unknown := [name for name in arguments if name not in given]:
        remarks.append(f"--model_args {', '.join(unknown)}: only tasks see it, as in lm-eval; no client does")
    is_openai = config.model.startswith("openai-")
    base_url = given.get("base_url") or (_OPENAI_URL if is_openai else None)
    if not base_url:
        raise SpecificationError("--model_args names no base_url: write base_url=http://localhost:8000/v1/…")
    model = given.get("model") or given.get("pretrained")
    if not model:
        raise SpecificationError("--model_args names no model: write model=NAME, as the server serves it")
    if endpoint == "chat" and not config.apply_chat_template:
        raise SpecificationError(
            f"--model {config.model} needs --apply_chat_template: without it lm-eval asks chat endpoints nothing"
        )
    spec = ModelSpec(
        base_url=str(base_url),
        model=str(model),
        endpoint=endpoint,
        tls=TLS(insecure=given.get("verify_certificate") is False, ca_file=given.get("ca_cert_path")),
        think_end_token=given.get("think_end_token") if endpoint == "chat" else None,
        headers=_headers(given.get("header")),
        dialect="openai" if is_openai else "auto",
        **_renamed(given),
    )
    return _with_tokens(spec, given, config, remarks)


def _headers(header: Any) -> dict[str, str]:
    if header is None:
        return {}
    if not isinstance(header, dict):
        raise SpecificationError(f"--model_args header={header}: write a dictionary, as {{'X-Team': 'inference'}}")
    headers = {str(name): literal(str(value)) for name, value in header.items()}
    is_key_among = any(name.lower() == "authorization" for name in headers)
    return headers if is_key_among else {"Authorization": "", **headers}


def _count(value: Any) -> int:
    """A count as lm-eval takes it: what is below one is one."""
    return max(1, int(value))


_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "num_concurrent": ("concurrency", _count),
    "timeout": ("request_timeout", float),
    "max_retries": ("max_attempts", _count),
    "seed": ("seed", int),
    "max_length": ("max_length", int),
    "max_gen_toks": ("max_gen_toks", int),
}
"""Model argument -> field of ModelSpec, and what makes its value."""


def _renamed(given: dict[str, Any]) -> dict[str, Any]:
    fields = {}
    for name, (field, kind) in _FIELDS.items():
        if name in given:
            fields[field] = _number(name, given[name], kind)
    return fields


def _number(name: str, value: Any, kind: Callable[[Any], Any]) -> Any:
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise SpecificationError(f"--model_args {name}={value}: that is no number") from None


def _with_tokens(model: ModelSpec, given: dict[str, Any], config: Any, remarks: list[str]) -> ModelSpec:
    """The model with its tokenizer, and with what depends on it."""
    from msgspec.structs import replace

    is_sequential = int(given.get("num_concurrent", 1)) <= 1
    eos = given.get("eos_string")
    if model.endpoint == "completions":
        batch = _batch_size(given.get("batch_size", config.batch_size))
        if batch > 1:
            at_once = batch * max(1, int(given.get("num_concurrent", 1)))
            remarks.append(f"batch_size {batch}: prompts are sent one by one, {at_once} at once")
            model = replace(model, concurrency=at_once)
        usual = "tiktoken" if config.model == "openai-completions" else "auto"
        tokenizer = _tokenizer(given, model, usual)
        if tokenizer is not None:
            model = replace(
                model,
                tokenizer=tokenizer,
                tokenized_requests=given.get("tokenized_requests", True) is not False,
                tokenizer_revision=given.get("revision"),
                add_bos_token=bool(given.get("add_bos_token", False)),
                custom_prefix_token_id=given.get("custom_prefix_token_id"),
            )
            if is_sequential and eos is None:
                own = tokenizer_of(model)
                eos = None if own is None else own.eos_token
    elif isinstance(config.apply_chat_template, str):
        remarks.append("--apply_chat_template: the server applies its own template")
    if config.model == "openai-chat-completions" and not is_sequential:
        eos = _OPENAI_EOS  # only this client has a default, which it also sends with several requests at once
    elif eos is not None and not is_sequential:
        remarks.append("--model_args eos_string: lm-eval sends it only with num_concurrent=1; it is not sent")
        eos = None
    return replace(model, eos_string=eos)


def _batch_size(value: Any) -> int:
    text = str(value)
    return int(text) if text.isdecimal() else 1  # lm-eval takes "auto" for 1 where the model is served


def _tokenizer(given: dict[str, Any], model: ModelSpec, usual: str) -> str | None:
    backend, named = given.get(_BACKEND, usual), given.get("tokenizer")
    if backend is None or str(backend).lower() == "none":
        return None
    if named is not None and backend in ("tiktoken", "remote"):
        raise SpecificationError(
            f"--model_args tokenizer={named} makes no sense with tokenizer_backend={backend}, which brings its own: "
            "leave one of them out"
        )
    if backend == "tiktoken":
        return f"{TIKTOKEN}{model.model}"
    if backend == "remote" or (backend == "auto" and named is None and server_has_tokenizer(model)):
        return REMOTE
    if backend not in ("auto", "huggingface"):
        raise SpecificationError(
            f"--model_args tokenizer_backend={backend} is not known; write huggingface, tiktoken, remote or none"
        )
    return str(named or model.model)


def _task_options(config: Any, own: OwnOptions) -> TaskOptions:
    template = config.apply_chat_template
    is_chat = config.model in _ENDPOINTS and _ENDPOINTS[config.model] == "chat"
    if not is_chat and isinstance(template, str):
        raise SpecificationError(
            f"--apply_chat_template {template} is not supported: the tokenizer's default template is applied; "
            "leave the name out"
        )
    return TaskOptions(
        limit=config.limit,
        samples={task: tuple(numbers) for task, numbers in config.samples.items()} if config.samples else None,
        num_fewshot=config.num_fewshot,
        gen_kwargs=config.gen_kwargs or {},
        fewshot_as_multiturn=bool(config.fewshot_as_multiturn),
        apply_chat_template=bool(template) and not is_chat,
        system_instruction=config.system_instruction,
        include_path=config.include_path,
        data_dir=own.data_dir,
        confirm_run_unsafe_code=config.confirm_run_unsafe_code,
        metadata=_metadata(config),
        predict_only=config.predict_only,
        **_seeds(config.seed),
    )


def _metadata(config: Any) -> dict[str, Any]:
    """What tasks get to see beside the usual model arguments: ``--metadata``, and arguments that no client knows."""
    arguments = config.model_args
    return {
        name: value
        for name, value in config.metadata.items()
        if name not in MODEL_ARGUMENTS or name not in arguments or arguments[name] != value
    }


def _seeds(seeds: list[int | None] | None) -> dict[str, int]:
    if seeds is None or None in seeds:
        raise SpecificationError("--seed None is not supported: such a run is never the same twice; write a number")
    return {name: seed for name, seed in zip(_SEEDS, seeds, strict=True) if seed is not None}


def _judged(own: OwnOptions) -> dict[str, Any]:
    checks = [parse_minimum(text) for text in own.min] + [parse_maximum(text) for text in own.max]
    return {
        "checks": tuple(with_ranges(checks, [parse_range(text) for text in own.range])),
        "alpha": USUAL_ALPHA if own.alpha is None else own.alpha,
        "early_stopping": EarlyStopping() if own.stop_early else None,
    }


def _output(path: str | None) -> tuple[str, Path | None]:
    """The output folder; and where a JSON file is named, its name."""
    if not path:
        return _USUAL_OUTPUT, None
    named = Path(path)
    return (str(named.parent), named) if named.suffix == ".json" else (path, None)
