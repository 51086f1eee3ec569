"""Chat templates give the text that transformers gives: recorded from release 5.24.0, and live where it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import SpecificationError
from assay.tasks.chat_template import ChatTemplate
from assay.tasks.huggingface_tokenizer import HuggingFaceTokenizer
from tests.small_tokenizer import write_small_tokenizer
from tests.tasks.chat_templates import CONTINUED, CONVERSATIONS, NAMES, TEMPLATES, conversation

RECORDED = json.loads(Path(__file__).with_name("chat_templates.json").read_text())


def render(template: str, name: str) -> str | None:
    """None where the template refuses the conversation."""
    compiled = ChatTemplate(TEMPLATES[template], NAMES, "here")
    try:
        return compiled.render(CONVERSATIONS[name], add_generation_prompt=not name.startswith(CONTINUED))
    except SpecificationError:
        return None


@pytest.mark.parametrize("name", CONVERSATIONS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_conversations_are_rendered_as_by_transformers(template: str, name: str) -> None:
    assert render(template, name) == RECORDED[template][name]


@pytest.mark.parametrize("template", TEMPLATES)
def test_conversations_are_rendered_as_by_the_transformers_that_is_installed(template: str) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), chat_template=TEMPLATES[template], **NAMES
    )
    for name, turns in CONVERSATIONS.items():
        continues = name.startswith(CONTINUED)
        try:
            expected = theirs.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=not continues, continue_final_message=continues
            )
        except Exception:
            expected = None
        assert render(template, name) == expected


def test_a_refusal_is_told() -> None:
    with pytest.raises(SpecificationError, match="the chat template of 'here' refuses a conversation: no system role"):
        ChatTemplate(TEMPLATES["strict"], NAMES, "here").render(conversation("a", system="b"))


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for %}", "cannot be read: Expected an expression"),
        ("{{ messages[9].content.x }}", "refuses a conversation: "),
        ("{{ 1 // 0 }}", "refuses a conversation: "),
        ("{{ ''.__class__.__mro__ }}", "refuses a conversation: "),
        ("{{ messages.append(1) }}", "refuses a conversation: "),
    ],
)
def test_faults_and_break_outs_are_told(template: str, message: str) -> None:
    with pytest.raises(SpecificationError, match=message):
        ChatTemplate(template, NAMES, "here").render(conversation("a"))


def test_an_answer_that_the_template_leaves_out_cannot_be_continued() -> None:
    with pytest.raises(SpecificationError, match=r"does not show the beginning of an answer .*: 'The answer'"):
        ChatTemplate("{{ messages[0].content }}", NAMES, "here").render(
            conversation("a", "The answer"), add_generation_prompt=False
        )


@pytest.mark.parametrize("where", ["file", "configuration", "several in the configuration", "file and configuration"])
def test_where_a_template_is_found(tmp_path: Path, where: str) -> None:
    template, other = "{{ bos_token }}{{ messages[0].content }}{{ unk_token }}{{ image_token }}", "{{ 1 }}"
    config: dict[str, Any] = {"image_token": "<i>", "unk_token": {"content": "<u>"}}
    placed: dict[str, dict[str, Any]] = {
        "file": {},
        "configuration": {"chat_template": template},
        "several in the configuration": {
            "chat_template": [{"name": "tool", "template": other}, {"name": "default", "template": template}]
        },
        "file and configuration": {"chat_template": other},
    }
    folder = write_small_tokenizer(tmp_path, **config | placed[where])
    if where.startswith("file"):
        (tmp_path / "chat_template.jinja").write_text(template)
    found = HuggingFaceTokenizer(folder).chat_template
    assert found.text == template
    assert found.render(conversation("hello")) == "<s>hello<u>"


def test_a_tokenizer_without_a_template(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=r"has no chat template, neither in chat_template\.jinja nor"):
        _ = HuggingFaceTokenizer(write_small_tokenizer(tmp_path)).chat_template
