"""Kept templates render what fresh ones render."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jinja2
import pytest

from assay.tasks.patches.templates import cache_compiled_templates

if TYPE_CHECKING:
    from collections.abc import Iterator

TEMPLATES = [
    "Question: {{question}}\nAnswer:",
    "{% set words = question.split() %}{{words|length}} {{words[0]}}",
    "{% for word in question.split() %}{{loop.index}}:{{word}} {% endfor %}",
    "{{question|regex_replace('[aeiou]', '*')}}",
    "{{'' if question is defined else 'none'}} trailing newline\n",
    "no fields",
    "",
]
DOCUMENTS = [{"question": "one two"}, {"question": "three"}, {"question": "ünï {{question}}"}]


@pytest.fixture
def _keeping() -> Iterator[None]:
    from lm_eval.utils import env

    before = env.__dict__.get("from_string")
    cache_compiled_templates()
    cache_compiled_templates()
    yield
    del env.__dict__["from_string"]
    if before is not None:
        env.__dict__["from_string"] = before


@pytest.mark.usefixtures("_keeping")
@pytest.mark.parametrize("template", TEMPLATES)
def test_same_text(template: str) -> None:
    from lm_eval.utils import apply_template, env

    for document in [*DOCUMENTS, *DOCUMENTS]:
        fresh = jinja2.Environment.from_string(env, template).render(**document)
        assert apply_template(template, document) == fresh


@pytest.mark.usefixtures("_keeping")
def test_each_text_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from lm_eval.utils import apply_template, env

    compiled: list[str] = []
    compile_template = env.compile

    def counted(source: str, *args: Any, **options: Any) -> Any:
        compiled.append(source)
        return compile_template(source, *args, **options)

    monkeypatch.setattr(env, "compile", counted)
    template = "compiled once: {{question}}"
    assert [apply_template(template, document) for document in DOCUMENTS] == [
        f"compiled once: {document['question']}" for document in DOCUMENTS
    ]
    assert compiled == [template]


@pytest.mark.usefixtures("_keeping")
def test_errors_are_lm_evals() -> None:
    from lm_eval.utils import apply_template

    for _ in range(2):
        with pytest.raises(jinja2.UndefinedError, match="'answer' is undefined"):
            apply_template("{{answer}}", {"question": "x"})
        with pytest.raises(jinja2.TemplateSyntaxError):
            apply_template("{{question", {"question": "x"})


@pytest.mark.usefixtures("_keeping")
def test_globals_are_not_shared_between_templates() -> None:
    from lm_eval.utils import env

    assert env.from_string("{{a}}", {"a": 1}).render() == "1"
    assert env.from_string("{{a}}", globals={"a": 2}).render() == "2"
