"""What Assay asks of lm-eval's tasks, beside what the installed lm-eval's tasks have."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from lm_eval.api.task import ConfigurableTask
from lm_eval.api.task import Task as BaseTask

import assay
from assay.tasks.protocol import Task

METHODS = [name for name, member in vars(Task).items() if inspect.isfunction(member) and not name.startswith("_")]


@pytest.mark.parametrize("name", METHODS)
def test_lm_evals_tasks_can_be_called_as_assay_calls_them(name: str) -> None:
    ours = inspect.signature(getattr(Task, name)).parameters
    theirs = inspect.signature(getattr(ConfigurableTask, name)).parameters
    wanted = [parameter for parameter in ours.values() if parameter.kind is not parameter.VAR_KEYWORD]
    assert [parameter.name for parameter in wanted] == list(theirs)[: len(wanted)]


def test_lm_evals_tasks_have_what_assay_reads() -> None:
    properties = {name for name, member in vars(Task).items() if isinstance(member, property)}
    assert {"config", "eval_docs", "task_name"} == properties
    for kind in (BaseTask, ConfigurableTask):
        assert not [name for name in (*properties, *METHODS, *Task.__annotations__) if not hasattr(kind, name)]


def test_tasks_have_a_type_wherever_they_are_passed_on() -> None:
    untyped = [
        f"{file.name}, line {argument.lineno}"
        for file in Path(assay.__file__).parent.rglob("*.py")
        for argument in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(argument, ast.arg) and argument.arg == "task" and argument.annotation is not None
        if ast.unparse(argument.annotation) == "Any"
    ]
    assert not untyped
