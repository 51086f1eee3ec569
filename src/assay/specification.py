"""Validates a specification, and computes the fingerprint that identifies its run."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from assay._util.versions import installed_version
from assay.client.request_shape import shape_of, validate_shape
from assay.client.urls import endpoint_url, server_root, without_secrets
from assay.client.user_headers import header_values, without_values
from assay.errors import SpecificationError
from assay.stats.multiple import bonferroni_alpha
from assay.tasks.gen_kwargs import generation_fault
from assay.tasks.selection import validate_samples

if TYPE_CHECKING:
    from assay.types import Budget, LocalOptions, ModelSpec, Specification, TaskOptions


_POSITIVE = (
    "max_attempts",
    "max_length",
    "max_gen_toks",
    "request_timeout",
    "stall_timeout",
    "give_up_after",
    "requests_per_minute",
    "tokens_per_minute",
)
"""Fields of a model that are numbers greater than 0."""
_MOST_CONNECTIONS = 65_535


def validate(specification: Specification) -> Specification:
    """Refuse values that make no sense.

    Returns:
        The specification with values of the declared types (a path may be given for a text, a list for a tuple), and
        each check with its share of ``alpha``.

    Raises:
        SpecificationError: with the value and what would be right.
    """
    if isinstance(specification.model.concurrency, str) and specification.model.concurrency != "auto":
        raise SpecificationError(f"concurrency is {specification.model.concurrency!r}; it must be a number, or 'auto'")
    specification = _of_declared_types(specification)
    if not specification.tasks:
        raise SpecificationError("no task is named")
    if specification.early_stopping is not None and not specification.checks:
        raise SpecificationError("a run can stop early only where checks say when: add a check, or run it in full")
    if specification.fresh and specification.retry_failed:
        raise SpecificationError("--fresh starts anew and --retry-failed goes on with the last run: choose one")
    refuse_alpha(specification.alpha)
    if specification.early_stopping is not None:
        refuse_budget(specification.early_stopping.budget)
    validate_model(specification.model)
    _validate_options(specification.options)
    specification = _with_seeds_of_repeats(specification)
    if specification.options.apply_chat_template and specification.model.endpoint == "completions":
        _require_tokenizer(specification.model)
    return _with_shares_of_alpha(specification)


def refuse_alpha(alpha: float, name: str = "alpha") -> None:
    """Refuse an error rate that makes no sense.

    Raises:
        SpecificationError: with the value and what would be right.
    """
    if not 0 < alpha < 0.5:
        raise SpecificationError(f"{name} is {alpha:g}; it must lie between 0 and 0.5, for example 0.01")


def refuse_budget(budget: Budget, name: str = "budget") -> None:
    """Refuse a budget that makes no sense.

    Raises:
        SpecificationError: with the value and what would be right.
    """
    for field in budget.__struct_fields__:
        value = getattr(budget, field)
        if value is not None and not value > 0:
            raise SpecificationError(f"{name}.{field} is {value:g}; it must be greater than 0")


def _with_shares_of_alpha(specification: Specification) -> Specification:
    """Give each check the error rate at which it is decided (Bonferroni)."""
    sharing = sum(check.alpha is None for check in specification.checks)
    if not sharing:
        return specification
    share = bonferroni_alpha(specification.alpha, sharing)
    checks = tuple(
        msgspec.structs.replace(check, alpha=share) if check.alpha is None else check for check in specification.checks
    )
    return msgspec.structs.replace(specification, checks=checks)


def _with_seeds_of_repeats(specification: Specification) -> Specification:
    """The same, with seeds of their own for repeats that the user asks for and says nothing of their seeds."""
    model = specification.model
    if model.distinct_repeat_seeds is not None or (specification.options.repeats or 1) == 1:
        return specification
    return msgspec.structs.replace(specification, model=msgspec.structs.replace(model, distinct_repeat_seeds=True))


def _of_declared_types(specification: Specification) -> Specification:
    tasks: Any = specification.tasks
    if isinstance(tasks, str):
        raise SpecificationError(f"tasks is {tasks!r}; it must be a tuple of names")
    try:
        return msgspec.convert(msgspec.to_builtins(specification, enc_hook=_plain), type(specification))
    except msgspec.ValidationError as error:
        raise SpecificationError(readable(error)) from None
    except TypeError as error:
        raise SpecificationError(f"the specification has a value of the wrong kind: {error}") from None


def _plain(value: Any) -> Any:
    """Convert paths, ranges and NumPy's scalars for msgspec."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, range):
        return list(value)
    if hasattr(value, "item"):  # NumPy's scalars
        return value.item()
    raise TypeError(f"a value of type {type(value).__name__}: {value!r}")


def readable(error: msgspec.ValidationError) -> str:
    """``Expected `float`, got `str` - at `$.checks[0].min``` with the place first and no dollar sign."""
    message, _, place = str(error).partition(" - at ")
    return f"{place.strip('`').removeprefix('$.')}: {message}" if place else message


def validate_model(model: ModelSpec) -> None:
    """Refuse values that make no sense.

    Raises:
        SpecificationError: with the value and what would be right.
    """
    if not model.model:
        raise SpecificationError("no model is named")
    if model.model in (".", ".."):
        raise SpecificationError(f"model is '{model.model}', which cannot name a folder of results")
    if model.local is None:
        _validate_endpoints(model)
    else:
        _validate_local(model, model.local)
    if model.tokenizer is not None and model.endpoint == "chat":
        raise SpecificationError("a tokenizer is of use only on the completions endpoint (--completions)")
    _validate_concurrency(model.concurrency)
    validate_shape(model)
    header_values(model.headers)
    for name in _POSITIVE:
        value = getattr(model, name)
        if value is not None and not 0 < value < float("inf"):
            raise SpecificationError(f"{name} is {value:g}; it must be greater than 0, and finite")


def _validate_concurrency(concurrency: int | Literal["auto"]) -> None:
    if concurrency == "auto":
        return
    if concurrency < 1:
        raise SpecificationError(f"concurrency is {concurrency}; it must be greater than 0, or 'auto'")
    if concurrency > _MOST_CONNECTIONS:
        raise SpecificationError(f"concurrency is {concurrency}; a server has at most {_MOST_CONNECTIONS} ports")


def _validate_local(model: ModelSpec, local: LocalOptions) -> None:
    if model.endpoint != "completions" or model.replicas:
        raise SpecificationError(
            f"the model {model.base_url!r} answers in this process: it has no chat endpoint, no replicas"
        )
    if local.batch_size != "auto" and local.batch_size < 1:
        raise SpecificationError(f"batch_size is {local.batch_size}; it must be greater than 0, or 'auto'")


def _validate_endpoints(model: ModelSpec) -> None:
    for base_url in model.base_urls:
        endpoint_url(base_url, model.endpoint)
    addresses = [server_root(base_url) for base_url in model.base_urls]
    twice = next((address for address in addresses if addresses.count(address) > 1), None)
    if twice is not None:
        raise SpecificationError(f"the endpoint {twice} is named twice; name each server once")


def _require_tokenizer(model: ModelSpec) -> None:
    if model.tokenizer is None and model.local is None:
        raise SpecificationError(
            "a chat template can be applied here only with the model's tokenizer, which has it (--tokenizer); or ask "
            "the chat endpoint, where the server applies it"
        )


def _validate_options(options: TaskOptions) -> None:
    if options.samples is not None:
        validate_samples(options.samples)
        if options.limit is not None:
            raise SpecificationError("limit and samples both choose documents: give one of them")
    if options.limit is not None and not 0 < options.limit < float("inf"):
        raise SpecificationError(f"limit is {options.limit:g}; it must be at least 1, or a fraction between 0 and 1")
    if options.repeats is not None and options.repeats < 1:
        raise SpecificationError(f"repeats is {options.repeats}; each document must be asked once at least")
    if fault := generation_fault(options.gen_kwargs):
        raise SpecificationError(f"gen_kwargs: {fault}")
    if not 0 <= options.numpy_seed < 2**32:
        raise SpecificationError(f"numpy_seed is {options.numpy_seed}; NumPy takes 0 to {2**32 - 1}")
    if options.num_fewshot is not None and options.num_fewshot < 0:
        raise SpecificationError(f"num_fewshot is {options.num_fewshot}; it cannot be negative")


def recorded(specification: Specification) -> Specification:
    """The specification as it is stored: without keys in addresses and values of headers."""
    model = specification.model
    if model.local is not None:
        return specification
    shown = msgspec.structs.replace(
        model,
        base_url=without_secrets(model.base_url),
        replicas=tuple(map(without_secrets, model.replicas)),
        headers=without_values(model.headers),
    )
    return msgspec.structs.replace(specification, model=shown)


def fingerprints(specification: Specification) -> tuple[str, ...]:
    """The run's :func:`fingerprint` at each of its endpoints; runs that share one may share a journal."""
    model = specification.model
    alone = (msgspec.structs.replace(model, base_url=base_url, replicas=()) for base_url in model.base_urls)
    return tuple(fingerprint(msgspec.structs.replace(specification, model=model)) for model in alone)


def fingerprint(specification: Specification) -> str:
    """Hash of everything that can change a run's answers or scores, at its first endpoint.

    Concurrency, time-outs, the output folder and checks do not count.

    Returns:
        64 hexadecimal digits.
    """
    model = specification.model
    identity: dict[str, Any] = {
        "tasks": specification.tasks,
        "base_url": model.base_url if model.local else without_secrets(endpoint_url(model.base_url, model.endpoint)),
        "model": model.model,
        "endpoint": model.endpoint,
        "max_length": model.max_length,
        "seed": model.seed,
        "distinct_repeat_seeds": bool(model.distinct_repeat_seeds),
        "tokenizer": model.tokenizer,
        "tokenized_requests": model.tokenized_requests,
        "tokenizer_revision": model.tokenizer_revision,
        "add_bos_token": model.add_bos_token,
        "custom_prefix_token_id": model.custom_prefix_token_id,
        "max_gen_toks": model.max_gen_toks,
        "eos_string": model.eos_string,
        "shape": shape_of(model),
        "think_end_token": model.think_end_token,
        "options": specification.options,
        "lm_eval": installed_version("lm_eval"),
    }
    if model.local is not None:
        identity["engine"] = [model.local.dtype, model.local.attn, model.local.identity]
    if specification.rerun:  # else the journals of earlier releases would not be found
        identity["rerun"] = specification.rerun
    return hashlib.sha256(msgspec.json.encode(identity, order="sorted")).hexdigest()
