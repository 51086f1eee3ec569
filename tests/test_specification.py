"""What identifies a run, and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from assay.errors import SpecificationError
from assay.specification import fingerprint, validate
from assay.types import TLS, Budget, Check, EarlyStopping, ModelSpec, Specification, TaskOptions

BASE = Specification(
    tasks=("gsm8k",), model=ModelSpec(base_url="http://localhost:8000", model="m"), options=TaskOptions(limit=10)
)


def changed(**changes: Any) -> Specification:
    """`BASE` with fields of it, its model or its options replaced."""
    model = {name: changes.pop(name) for name in ModelSpec.__struct_fields__ if name in changes}
    options = {name: changes.pop(name) for name in TaskOptions.__struct_fields__ if name in changes}
    return msgspec.structs.replace(
        BASE,
        model=msgspec.structs.replace(BASE.model, **model),
        options=msgspec.structs.replace(BASE.options, **options),
        **changes,
    )


@pytest.mark.parametrize(
    "change",
    [
        {"concurrency": 1},
        {"request_timeout": 1.0},
        {"max_attempts": 1},
        {"api_key_env": "OTHER"},
        {"api_key_file": "key"},
        {"give_up_after": 1.0},
        {"tls": TLS(insecure=True)},
        {"output_dir": "elsewhere"},
        {"fresh": True},
        {"retry_failed": True},
        {"stream": True},
        {"stall_timeout": 1.0},
        {"log_samples": False},
        {"checks": (Check(metric="acc,none", min=0.5),)},
        {"base_url": "http://localhost:8000/v1/"},
    ],
    ids=str,
)
def test_how_a_run_is_made_does_not_identify_it(change: dict[str, Any]) -> None:
    assert fingerprint(changed(**change)) == fingerprint(BASE)


@pytest.mark.parametrize(
    "change",
    [
        {"tasks": ("gsm8k", "mmlu_pro")},
        {"model": "other"},
        {"base_url": "http://localhost:8001"},
        {"endpoint": "completions"},
        {"seed": 1},
        {"distinct_repeat_seeds": True},
        {"max_length": 4096},
        {"limit": 11.0},
        {"num_fewshot": 0},
        {"gen_kwargs": {"temperature": 1}},
        {"fewshot_as_multiturn": False},
        {"apply_chat_template": True},
        {"system_instruction": "Be brief."},
        {"include_path": "tasks"},
        {"fewshot_seed": 1},
        {"random_seed": 1},
        {"torch_seed": 1},
        {"limit": None, "samples": {"gsm8k": (0, 5)}},
    ],
    ids=str,
)
def test_what_can_change_an_answer_or_a_score_does(change: dict[str, Any]) -> None:
    assert fingerprint(changed(**change)) != fingerprint(BASE)


def test_a_reasonable_specification_is_accepted() -> None:
    validate(BASE)
    validate(changed(limit=0.5, num_fewshot=0, concurrency=1024))
    validate(changed(limit=5.7))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": ()}, "no task"),
        ({"model": ""}, "no model"),
        ({"limit": 0}, "limit is 0"),
        ({"limit": -0.5}, "limit is -0.5"),
        ({"limit": float("nan")}, "limit is nan"),
        ({"limit": float("inf")}, "limit is inf"),
        ({"gen_kwargs": {" ": 1}}, "gen_kwargs: a setting has no name"),
        ({"num_fewshot": -1}, "num_fewshot is -1"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"max_attempts": 0}, "max_attempts is 0"),
        ({"request_timeout": 0.0}, "request_timeout is 0"),
        ({"max_length": -4}, "max_length is -4"),
        ({"base_url": "localhost:8000"}, "localhost:8000"),
        ({"replicas": ("localhost:8001",)}, "localhost:8001"),
        ({"replicas": ("http://localhost:8000/v1/",)}, "named twice"),
        ({"replicas": "http://localhost:8001"}, "model.replicas: Expected `array`, got `str`"),
        ({"tasks": "gsm8k"}, "must be a tuple of names"),
        ({"tasks": 5}, "tasks: Expected `array`, got `int`"),
        ({"limit": "ten"}, "options.limit: Expected"),
        ({"concurrency": "8"}, "concurrency is '8'; it must be a number, or 'auto'"),
        ({"concurrency": 2.5}, "model.concurrency: Expected"),
        ({"concurrency": 70_000}, "concurrency is 70000"),
        ({"gen_kwargs": {"stop": 1j}}, "has a value of the wrong kind: a value of type complex"),
        ({"samples": {"gsm8k": (0,)}}, "limit and samples both choose"),
        ({"samples": {}}, "samples must name documents by task"),
        ({"samples": {"gsm8k": ()}}, r"samples for 'gsm8k' is \(\); it must be a list of numbers"),
        ({"samples": {"gsm8k": (0, -1)}}, "samples for 'gsm8k' has -1; documents are numbered from 0"),
        ({"numpy_seed": -1}, "numpy_seed is -1"),
    ],
    ids=str,
)
def test_what_could_not_be_meant_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        validate(changed(**change))


def test_values_of_kindred_types_are_taken(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "tasks": ["gsm8k"],
        "output_dir": tmp_path,
        "include_path": tmp_path,
        "limit": np.int64(3),
        "gen_kwargs": {"temperature": np.float64(0.5)},
    }
    meant = changed(output_dir=str(tmp_path), include_path=str(tmp_path), limit=3, gen_kwargs={"temperature": 0.5})
    assert validate(changed(**given)) == meant
    chosen = validate(changed(limit=None, samples={"gsm8k": range(3)}))
    assert chosen.options.samples == {"gsm8k": (0, 1, 2)}


def test_checks_share_the_runs_alpha_unless_they_have_one() -> None:
    two, own = (Check(metric="acc", min=0.5), Check(metric="f1", max=0.5)), Check(metric="em", min=0.1, alpha=0.002)
    assert [check.alpha for check in validate(changed(checks=two)).checks] == [0.005, 0.005]
    assert [check.alpha for check in validate(changed(checks=two, alpha=0.1)).checks] == [0.05, 0.05]
    mixed = validate(changed(checks=(*two, own)))
    assert [check.alpha for check in mixed.checks] == [0.005, 0.005, 0.002]
    assert validate(mixed) == mixed
    with pytest.raises(SpecificationError, match=r"alpha is 0\.7; it must lie between 0 and 0.5"):
        validate(changed(alpha=0.7))


@pytest.mark.parametrize("budget", [Budget(documents=0), Budget(tokens=-1), Budget(minutes=float("nan"))], ids=str)
def test_a_budget_is_refused_from_python_as_in_a_policy(budget: Budget) -> None:
    stopping = EarlyStopping(budget=budget)
    with pytest.raises(SpecificationError, match=r"budget\.\w+ is (0|-1|nan); it must be greater than 0"):
        validate(changed(checks=(Check(metric="acc,none", min=0.5),), early_stopping=stopping))
