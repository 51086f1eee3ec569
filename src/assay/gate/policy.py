"""A gate's policy: which servers must meet which demands. Reads it from a TOML file, see ``docs/gate-toml.md``.

::

    alpha = 0.01                    # chance of any wrong verdict, shared by all checks
    [models.main]
    base_url = "http://localhost:8000"
    model = "my-model"
    [[checks]]
    task = "gsm8k_cot"
    metric = "exact_match,strict-match"
    min = 0.6
"""

from __future__ import annotations

import difflib
import os
import tomllib
import typing
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import msgspec

from assay._util.address_list import read_addresses
from assay._util.paths import expand_home
from assay.checks.verdicts import validate_check
from assay.errors import FileFormatError, SpecificationError
from assay.gate.wrong_types import type_error_message
from assay.specification import fingerprints, refuse_alpha, refuse_budget
from assay.types import LOCAL_PREFIX, Budget, Check, EarlyStopping, ModelSpec, Specification, TaskOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

_PATHS_OF_OPTIONS = ("include_path", "data_dir")
_PATHS_OF_TLS = ("ca_file", "client_cert", "client_key")


class CheckEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One ``[[checks]]`` table: the fields of :class:`assay.types.Check`, and the model that it is for."""

    task: str
    metric: str
    min: float | None = None
    max: float | None = None
    baseline: str | None = None
    margin: float | None = None
    alpha: float | None = None
    """The check's own error rate; None: its share of the policy's."""
    allow_mismatch: bool = False
    range: tuple[float, float] | None = None
    model: str | None = None
    """Name of a ``[models.…]`` table; None: every model must meet the check."""


class IdentityEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One ``[[identity]]`` table, or ``identity = {…}``: is it still the model of a record?"""

    record: str
    """A file of ``assay fingerprint save``."""
    noise: tuple[str, ...] = ()
    """Records of the same model that count as healthy."""
    tolerate: float = 0.0
    size: float | None = None
    alpha: float = 0.001
    """The greatest chance of a wrong ``different``, and of a wrong ``same``."""
    requests: int = 200
    settles: bool = False
    """Let ``same`` settle the checks on scores, which must all have a baseline, without asking anything for them."""
    model: str | None = None
    """Name of a ``[models.…]`` table; None: every model is checked."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy file. Its relative paths start at its folder."""

    models: dict[str, ModelSpec]
    checks: tuple[CheckEntry, ...] = ()
    identity: tuple[IdentityEntry, ...] = ()
    """Asked before the checks on scores; at most one for each model."""
    tasks: tuple[str, ...] = ()
    """What to run; empty: the checks' tasks. If a check is about one task of a group, the group must be named here."""
    options: TaskOptions = TaskOptions()
    budget: Budget = Budget()
    """Of each model."""
    alpha: float = 0.01
    correction: Literal["bonferroni", "holm", "none"] = "bonferroni"
    """How the checks share ``alpha``; ``none``: each has all of it."""
    stop_early: bool = True
    order_seed: int | None = None
    output_dir: str = "results"
    log_samples: bool = True
    fresh: bool = False
    retry_failed: bool = False
    probe: bool = True
    """Probe each server first, and record what it supports with the results."""


class Overrides(msgspec.Struct, frozen=True, kw_only=True):
    """Values of a command line or a test session that replace the policy's."""

    base_urls: tuple[str, ...] = ()
    """Each ``NAME=URL`` or ``NAME=@FILE``; ``NAME=`` may be left out if the policy has one model. Several of one model
    are its replicas."""
    models: tuple[str, ...] = ()
    """Served names: each ``NAME=MODEL``, or only ``MODEL`` if the policy has one model."""
    data_dir: str | None = None
    """Where the policy names none."""
    output_dir: str | None = None
    fresh: bool = False
    no_probe: bool = False
    retry_failed: bool = False


def load_policy(path: str | Path, overrides: Overrides | None = None) -> Policy:
    """Read a policy file; its relative paths become relative to the working directory.

    Args:
        path: the TOML file.
        overrides: values that replace those of the file.

    Raises:
        FileFormatError: the file is missing or not TOML.
        SpecificationError: a key is unknown, or a value is missing or not valid.
    """
    file = Path(path)
    if file.suffix in (".yaml", ".yml") and file.is_file():
        raise FileFormatError(
            f"{path} is YAML, and policies are TOML: assay gate import {path} makes one of a configuration of vLLM's CI"
        )
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileFormatError(f"there is no policy file {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise FileFormatError(f"cannot read {path} as TOML: {error}") from error
    policy = _resolve_paths(_policy(document, str(path)), file.parent)
    return policy if overrides is None else override(policy, overrides)


def _policy(document: dict[str, Any], place: str) -> Policy:
    if isinstance(document.get("identity"), dict):
        document = {**document, "identity": [document["identity"]]}
    _refuse_unknown_keys(document, Policy, place)
    try:
        policy = msgspec.convert(document, Policy)
    except msgspec.ValidationError as error:
        raise SpecificationError(f"{place}: {type_error_message(error, document)}") from error
    _validate(policy, place)
    return policy


def policy_of_check(base_url: str, model: str, check: dict[str, Any], include_path: str | None = None) -> Policy:
    """A policy of one check on one server, with an identity check before it, or only the latter.

    Args:
        base_url: the server.
        model: the name under which it serves the model.
        check: the keys of a ``[[checks]]`` table, and ``identity``: those of an ``[[identity]]`` table.
        include_path: a folder of the user's own task YAML.

    Raises:
        SpecificationError: a key is unknown, or a value is missing or not valid.
    """
    scores = {key: value for key, value in check.items() if key != "identity"}
    document = {
        "models": {"main": {"base_url": base_url, "model": model}},
        "options": {} if include_path is None else {"include_path": include_path},
        "checks": [scores] if scores else [],
        "identity": check.get("identity", []),
        "output_dir": "assay-results",
    }
    return _policy(document, "the check")


def override(policy: Policy, overrides: Overrides) -> Policy:
    """The policy with some values replaced.

    Raises:
        SpecificationError: a value does not say which of several models it is for.
    """
    replace = msgspec.structs.replace
    models = dict(policy.models)
    for name, texts in _by_model(overrides.base_urls, policy).items():
        base_url, *replicas = read_addresses(texts)
        models[name] = replace(models[name], base_url=base_url, replicas=tuple(replicas))
    for name, texts in _by_model(overrides.models, policy).items():
        models[name] = replace(models[name], model=texts[-1])
    options = policy.options
    if overrides.data_dir:
        options = replace(options, data_dir=overrides.data_dir)
    return replace(
        policy,
        models=models,
        options=options,
        output_dir=overrides.output_dir or policy.output_dir,
        fresh=policy.fresh or overrides.fresh,
        retry_failed=policy.retry_failed or overrides.retry_failed,
        probe=policy.probe and not overrides.no_probe,
    )


def _by_model(texts: tuple[str, ...], policy: Policy) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for text in texts:
        name, value = _split_model_name(text, policy)
        named.setdefault(name, []).append(value)
    return named


def _split_model_name(text: str, policy: Policy) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals and name in policy.models:
        return name, value
    if len(policy.models) == 1:
        return next(iter(policy.models)), text
    raise SpecificationError(
        f"'{text}' does not say which model it is for: write NAME=…, {_suggestion(name, policy.models)}"
    )


def specifications(policy: Policy) -> dict[str, Specification]:
    """One run for each model that has checks on scores, with its part of the error rate that all checks share.

    Raises:
        SpecificationError: two models would send the same requests to the same server.
    """
    names = [name for name in policy.models if _entries_of(name, policy)]
    sharing = {name: sum(entry.alpha is None for entry in _entries_of(name, policy)) for name in names}
    runs = {name: _specification(name, policy, sharing[name] / max(sum(sharing.values()), 1)) for name in names}
    _refuse_shared_answers(runs)
    return runs


def _refuse_shared_answers(runs: Mapping[str, Specification]) -> None:
    """Refuse two runs that would resume each other's journal, so that one of the models would never be asked."""
    for (one, first), (other, second) in combinations(runs.items(), 2):
        if not set(fingerprints(first)).isdisjoint(fingerprints(second)):
            raise SpecificationError(
                f"[models.{one}] and [models.{other}] are the same model of the same server, asked the same, so that "
                "one's answers would be judged twice; if both are meant, give each a policy and output_dir of its own"
            )


def _specification(name: str, policy: Policy, part: float) -> Specification:
    entries = _entries_of(name, policy)
    return Specification(
        tasks=policy.tasks or tuple(dict.fromkeys(entry.task for entry in entries)),
        model=policy.models[name],
        options=policy.options,
        checks=tuple(_check(entry, policy) for entry in entries),
        alpha=(policy.alpha - _spent_on_identity(policy)) * (part or 1),
        early_stopping=_stopping(policy) if policy.stop_early else None,
        output_dir=policy.output_dir,
        log_samples=policy.log_samples,
        fresh=policy.fresh,
        retry_failed=policy.retry_failed,
        probe=policy.probe,
    )


def _stopping(policy: Policy) -> EarlyStopping:
    return EarlyStopping(budget=policy.budget, order_seed=policy.order_seed, holm=policy.correction == "holm")


def _entries_of(model: str, policy: Policy) -> list[CheckEntry]:
    return [entry for entry in policy.checks if entry.model in (None, model)]


def identity_of(model: str, policy: Policy) -> IdentityEntry | None:
    """The identity check of a model; None if the policy has none for it."""
    return next((entry for entry in policy.identity if entry.model in (None, model)), None)


def _spent_on_identity(policy: Policy) -> float:
    """What identity checks that may decide the gate take of the error rate that all checks share."""
    if policy.correction == "none":
        return 0.0
    entries = [(name, entry) for name in policy.models if (entry := identity_of(name, policy)) is not None]
    return sum(entry.alpha for name, entry in entries if entry.settles or not _entries_of(name, policy))


def _check(entry: CheckEntry, policy: Policy) -> Check:
    fields = {name: getattr(entry, name) for name in Check.__struct_fields__ if name != "alpha"}
    return Check(alpha=policy.alpha if entry.alpha is None and policy.correction == "none" else entry.alpha, **fields)


def _validate(policy: Policy, path: str) -> None:
    if not policy.models:
        raise SpecificationError(f"{path} names no model: write a table [models.NAME]")
    for name, model in policy.models.items():
        if model.local is not None or model.base_url.startswith(LOCAL_PREFIX):
            raise SpecificationError(
                f"{path}: [models.{name}] is a model in this process; a gate judges servers: serve it, or judge it by "
                "`assay run --model hf:… --min …`"
            )
    if not policy.checks and not policy.identity:
        raise SpecificationError(f"{path} has no checks: write at least one table [[checks]]")
    refuse_alpha(policy.alpha, f"{path}: alpha")
    if policy.budget != Budget() and not policy.stop_early:
        raise SpecificationError(f"{path}: a budget needs stop_early = true; a full run asks everything")
    refuse_budget(policy.budget, f"{path}: budget")
    for entry in policy.checks:
        if entry.model is not None and entry.model not in policy.models:
            raise SpecificationError(
                f"{path}: a check is for model '{entry.model}', but there is {_suggestion(entry.model, policy.models)}"
            )
        if entry.alpha is not None and policy.correction == "holm":
            raise SpecificationError(
                f"{path}: Holm's method shares one alpha; leave out the alpha of the check on {entry.task}"
            )
        validate_check(_check(entry, policy))
    _validate_identity(policy, path)
    judged = {name for name in policy.models if _entries_of(name, policy) or identity_of(name, policy)}
    if unused := [name for name in policy.models if name not in judged]:
        raise SpecificationError(
            f"{path}: no check is for model '{unused[0]}', so nothing would judge it: add one, or leave out "
            f"[models.{unused[0]}]"
        )


def _validate_identity(policy: Policy, path: str) -> None:
    for entry in policy.identity:
        if entry.model is not None and entry.model not in policy.models:
            raise SpecificationError(
                f"{path}: identity is for model '{entry.model}', but there is {_suggestion(entry.model, policy.models)}"
            )
        refuse_alpha(entry.alpha, f"{path}: alpha of identity")
    for name in policy.models:
        entries = [entry for entry in policy.identity if entry.model in (None, name)]
        if len(entries) > 1:
            raise SpecificationError(f"{path}: model '{name}' has {len(entries)} identity checks; keep one of them")
        without = [check.task for check in _entries_of(name, policy) if check.baseline is None]
        if entries and entries[0].settles and without:
            raise SpecificationError(
                f"{path}: identity cannot settle the check on {without[0]}, which has no baseline: the same model may "
                "always have missed it; leave out settles, or give the check a baseline"
            )
        if entries and entries[0].settles and not _entries_of(name, policy):
            raise SpecificationError(f"{path}: settles, but model '{name}' has no check on scores; leave it out")
    if (spent := _spent_on_identity(policy)) >= policy.alpha and policy.checks:
        raise SpecificationError(
            f"{path}: identity checks use {spent:g} of alpha = {policy.alpha:g}, which leaves nothing for the checks "
            "on scores: lower the alpha of identity, or raise the policy's"
        )


def _resolve_paths(policy: Policy, folder: Path) -> Policy:
    def resolved(path: str | None) -> str | None:
        if path is None:
            return None
        place = os.path.relpath(folder / expand_home(path))
        return os.path.abspath(place) if place.startswith(os.pardir) else place

    def with_resolved_paths(model: ModelSpec) -> ModelSpec:
        tls = replace(model.tls, **{name: resolved(getattr(model.tls, name)) for name in _PATHS_OF_TLS})
        headers = {
            name: f"@{resolved(text[1:])}" if text.startswith("@") else text for name, text in model.headers.items()
        }
        return replace(model, api_key_file=resolved(model.api_key_file), tls=tls, headers=headers)

    replace = msgspec.structs.replace
    models = {name: with_resolved_paths(model) for name, model in policy.models.items()}
    options = replace(policy.options, **{name: resolved(getattr(policy.options, name)) for name in _PATHS_OF_OPTIONS})
    checks = tuple(replace(entry, baseline=resolved(entry.baseline)) for entry in policy.checks)
    identity = tuple(
        replace(entry, record=resolved(entry.record), noise=tuple(map(resolved, entry.noise)))
        for entry in policy.identity
    )
    output_dir = resolved(policy.output_dir) or "."
    return replace(policy, models=models, options=options, checks=checks, identity=identity, output_dir=output_dir)


def _refuse_unknown_keys(value: Any, kind: Any, place: str) -> None:
    """Refuse the first key that the types do not have; the message suggests the nearest one."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        for key, inner in value.items():
            if key not in hints:
                raise SpecificationError(f"{place}: there is no key '{key}'; there is {_suggestion(key, hints)}")
            _refuse_unknown_keys(inner, hints[key], f"{place}, {key}")
    elif get_origin(kind) is dict and isinstance(value, dict):
        for key, inner in value.items():
            _refuse_unknown_keys(inner, get_args(kind)[1], f"{place}.{key}")
    elif get_origin(kind) is tuple and isinstance(value, list):
        for number, inner in enumerate(value, 1):
            _refuse_unknown_keys(inner, get_args(kind)[0], f"{place} {number}")


def _suggestion(name: str, known: typing.Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"'{near[0]}'; did you mean that?" if near else ", ".join(names)
