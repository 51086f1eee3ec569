"""Chat templates of the kinds that models come with, in as few words."""

from __future__ import annotations

NAMES = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "marks": (
        "{% for message in messages %}{{ '<|start|>' + message['role'] + '\\n' + message['content'] + '<|end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\\n' }}{% endif %}"
    ),
    "trimming": (
        "{{ bos_token }}{% for message in messages %}\n"
        "    {%- if message.role == 'user' %}\n"
        "        {{- '[ASK] ' ~ message.content | trim ~ ' [/ASK]' }}\n"
        "    {%- elif message.role == 'assistant' %}\n"
        "        {{- ' ' ~ message.content | trim ~ ' ' ~ eos_token }}\n"
        "    {%- else %}\n"
        "        {{- '<<' ~ message.content ~ '>>' }}\n"
        "    {%- endif %}\n"
        "{% endfor %}\n"
    ),
    "strict": (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "{% for message in messages %}"
        "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles alternate') }}{% endif %}"
        "{% if message['role'] == 'assistant' %}{% set role = 'model' %}"
        "{% else %}{% set role = message['role'] %}{% endif %}"
        "{{ '<turn>' + role + '\\n' + message['content'] | trim + '</turn>\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<turn>model\\n' }}{% endif %}"
    ),
    "everything": (
        "{%- set space = namespace(last=none) %}\n"
        "{%- for message in messages %}\n"
        "    {%- if loop.index > 6 %}{% break %}{% endif %}\n"
        "    {%- if message.role == 'assistant' %}\n"
        "        {%- generation %}{{ message.content }}{{ eos_token }}{% endgeneration %}\n"
        "    {%- else %}\n"
        "        {{- message | tojson }}\n"
        "    {%- endif %}\n"
        "    {%- set space.last = message.role %}\n"
        "{%- endfor %}\n"
        "{{ space.last }}{{ tools is none }}{{ unknown }}{{ dict(a=1) | tojson(indent=1) }}\n"
        "{% if add_generation_prompt %}>{% endif %}\n"
    ),
}

USER, ASSISTANT = "user", "assistant"


def conversation(*contents: str, system: str | None = None) -> list[dict[str, str]]:
    """Turns of user and assistant in alternation."""
    turns = [] if system is None else [{"role": "system", "content": system}]
    return turns + [
        {"role": ASSISTANT if place % 2 else USER, "content": content} for place, content in enumerate(contents)
    ]


CONTINUED = "continued"
"""Conversations of this name end with the beginning of an answer."""

CONVERSATIONS = {
    "one question": conversation("What is 1 + 1?"),
    "examples": conversation("a <b> é\n", " two ", "c\u2028", "four\n\n", "last"),
    "system": conversation("question", system="Be “brief”. "),
    "continued": conversation("question", "The answer is"),
    "continued with a blank": conversation("a", "b", "question", "The answer is "),
    "continued as before": conversation("a", "The answer is", "question", "The answer is"),
}
