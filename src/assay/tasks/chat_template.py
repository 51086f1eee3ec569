"""Renders conversations by the chat template of a model's tokenizer, as transformers does.

Templates come with models, so they run in a sandbox. See
https://huggingface.co/docs/transformers/chat_templating for what templates may use.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Turn = dict[str, str]

_HERE = "\ue0a5assay\ue0a5"
"""Marks the end of an answer that the model is to continue. Private characters, which no text has."""


class ChatTemplate:
    """One template, compiled.

    Args:
        text: the template, in Jinja.
        names: its variables: the texts of special tokens such as ``bos_token``.
        source: where it comes from, for messages.

    Raises:
        SpecificationError: it is not valid Jinja.
    """

    def __init__(self, text: str, names: Mapping[str, str], source: str) -> None:
        import jinja2

        self.text = text
        self._names = dict(names)
        self._source = source
        try:
            self._template = _environment().from_string(text)
        except jinja2.TemplateError as error:
            raise SpecificationError(f"the chat template of '{source}' cannot be read: {error}") from None

    def render(self, chat_history: Sequence[Turn], add_generation_prompt: bool = True) -> str:
        """The conversation as text.

        Args:
            chat_history: its turns.
            add_generation_prompt: end with the header of the model's turn; else the last turn is the beginning of an
                answer, and the text ends with it.

        Raises:
            SpecificationError: the template refuses the conversation, or leaves out the answer to be continued.
        """
        if add_generation_prompt:
            return self._render(list(chat_history), add_generation_prompt=True)
        *before, last = chat_history
        # The space after the mark shows whether the template strips spaces at a turn's end.
        text = self._render([*before, {**last, "content": f"{last['content']}{_HERE} "}], add_generation_prompt=False)
        beginning, mark, rest = text.rpartition(_HERE)
        if not mark or last["content"].strip() not in beginning:
            raise SpecificationError(
                f"the chat template of '{self._source}' does not show the beginning of an answer that is to be "
                f"continued: {last['content'][:60]!r}"
            )
        return beginning if rest.startswith(" ") else beginning.rstrip()

    def _render(self, turns: list[Turn], *, add_generation_prompt: bool) -> str:
        import jinja2

        try:
            text: str = self._template.render(
                messages=turns,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._names,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise SpecificationError(f"the chat template of '{self._source}' refuses a conversation: {error}") from None
        return text


def _environment() -> Any:
    """Jinja with the extensions that chat templates expect."""
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The block that marks a model's own words for training; here only its content is rendered."""

        tags = {"generation"}  # noqa: RUF012 - Jinja's own declaration

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.Scope(body).set_lineno(line)

    def refuse(message: str) -> None:
        raise jinja2.TemplateError(message)

    def to_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def now(pattern: str) -> str:
        return datetime.now().strftime(pattern)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals |= {"raise_exception": refuse, "strftime_now": now}
    return environment
