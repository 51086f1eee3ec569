"""The faults of the matrix: what each does to a healthy answer, and which first lines are right.

``before`` faults change what the model writes, which stop strings and token limits then cut; ``after`` faults change
what has been cut. A fault befalls a share of the samples, by chance, by time or by endpoint.
"""

from __future__ import annotations

import html
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import quote

from assay.diagnosis.causes import Cause
from benchmarks.triage.replies import Reply


class Context(NamedTuple):
    """What a fault may look at."""

    task: str
    said: str
    """The bare answer that the model gave."""
    wrong: str
    """A wrong answer of the right form."""
    option: str | None
    """The text of that answer, if it is a letter."""
    constant: str
    """The right answer to the run's first document."""
    neighbour: Reply
    """The healthy answer to the next document."""
    explains: bool
    place: float
    """Where its request stands in the run, from 0 to 1."""
    length_rank: float
    """Its rank by length of prompt, from 0 to 1."""
    longest_kept: int
    """Characters of the longest question that a cut of the fault's strength spares."""
    draw: random.Random


Change = Callable[[Reply, Context], Reply]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, and what is right to say of it."""

    name: str
    change: Change
    with_baseline: frozenset[Cause]
    """Right first lines."""
    alone: frozenset[Cause]
    """Right first lines without a baseline; empty where nobody could tell."""
    held_out: bool = False
    after: bool = False
    strengths: tuple[float, float, float] = (0.3, 0.6, 1.0)
    """Shares of the samples that are hit."""
    where: str = "anywhere"
    """Which samples: ``anywhere``, those at the ``end`` of the run, or the ``longest``."""
    tasks: frozenset[str] | None = None
    """The tasks in which it makes sense; None: all."""
    target: Callable[[Any], Any] | None = None
    """What the data's right answers have become."""
    explained_only: bool = False
    """Makes sense only where an explanation precedes the answer."""

    def hits(self, context: Context, strength: float) -> bool:
        """Whether a sample is hit."""
        if self.where == "end":
            return context.place >= 1 - strength
        if self.where == "longest":
            return context.length_rank >= 1 - strength
        return context.draw.random() < strength


def _text(change: Callable[[str, Context], str]) -> Change:
    return lambda reply, context: reply if reply.text is None else replace(reply, text=change(reply.text, context))


def _said(form: str) -> Change:
    """The conclusion in another form."""

    def change(text: str, context: Context) -> str:
        steps = text.rsplit(". ", 1)[0] + ". " if context.explains else ""
        return steps + form.replace("SAID", context.said)

    return _text(change)


def _full_width(text: str, _: Context) -> str:
    return "".join(chr(ord(letter) + 0xFEE0) if "!" <= letter <= "~" else letter for letter in text)


def _rubbish(text: str, context: Context) -> str:
    letters = "абвгд漢字仮名кгλμνξ�"
    return "".join(context.draw.choice(letters) for _ in range(max(30, len(text))))


def _cut_rest(text: str, context: Context) -> str:
    kept = max(2, len(text) // 3)
    return text[:kept] + " " + " ".join(_words(context) for _ in range(20))


def _words(context: Context) -> str:
    return "".join(context.draw.choice("bcdfghjklmnpqrstvwxz") for _ in range(context.draw.randint(3, 9)))


def _failed(reply: Reply, _: Context) -> Reply:
    return replace(reply, status=500)


def _only(**values: object) -> Change:
    return lambda reply, _: replace(reply, **values)  # type: ignore[arg-type]


def _wrong(reply: Reply, context: Context) -> Reply:
    text = reply.text or ""
    return replace(reply, text=text.replace(context.said, context.wrong) if context.said in text else context.wrong)


def _constant(reply: Reply, context: Context) -> Reply:
    return _wrong(reply, context._replace(wrong=context.constant))


def _capped(limit: int) -> Change:
    """Reasoning comes first, and counts, too."""

    def change(reply: Reply, _: Context) -> Reply:
        if reply.reasoning is not None:
            return replace(reply, reasoning=reply.reasoning[:limit], text="")
        return replace(reply, text=(reply.text or "")[:limit])

    return change


def _leaked(opening: str, closing: str) -> Change:
    """The reasoning stands before the answer, with an empty line and a question of its own in it."""

    def change(text: str, context: Context) -> str:
        thought = f"The user asks question {context.draw.randint(10, 999)}.\n\nQuestion: what is asked? "
        return f"{opening}{thought}Q: I must be careful. The answer is 0. Wait{closing}{text}"

    return _text(change)


def _reworded_number(text: str) -> Change:
    """The number in another notation."""

    def change(reply: Reply, context: Context) -> Reply:
        if reply.text is None or not re.fullmatch(r"-?\d+", context.said):
            return reply
        return replace(reply, text=reply.text.replace(context.said, text.format(int(context.said))))

    return change


def _option_text(reply: Reply, context: Context) -> Reply:
    if context.option is None or reply.text is None:
        return reply
    bracketed = f"({context.said})"
    said = bracketed if bracketed in reply.text else context.said
    return replace(reply, text=reply.text.replace(said, context.option))


def _hot(text: str, context: Context) -> str:
    """What a temperature far too high gives: a beginning that makes sense, then pieces of any language and of code."""
    pieces = ("ization", "Вот", "kwargs});", "の", "한국", "über", "###", "été", "λx", "zwar", "}}", "你好", "пере")
    kept = text[: context.draw.randint(4, 30)]
    return kept + "".join(context.draw.choice(pieces) + context.draw.choice((" ", "", "-")) for _ in range(60))


def _other_target(target: Any) -> Any:
    """The same right answer as another revision of the data writes it."""
    if isinstance(target, list):
        return [_other_target(each) for each in target]
    solution, mark, answer = str(target).rpartition("#### ")
    return f"{solution}{mark}Answer: {answer}"


def _causes(*names: Cause) -> frozenset[Cause]:
    return frozenset(names)


C = Cause
_FORM = _causes(C.EXTRACTION_MISSED, C.NOT_READ, C.OTHER_FORM)
"""That the form is the reason, even if nothing tells which form: what nobody knows cannot be named."""
_CUT_SHORT = _causes(C.STOPPED_EARLY, C.NOT_READ, C.OTHER_FORM, C.SAME_ANSWER)
"""A stop string leaves an opening, the same in all answers."""
_EMPTY = _causes(C.EMPTY, C.ANSWER_IN_REASONING)
"""A model that reasons has come to its answer before its content is lost."""
_ALTERED = _FORM | _causes(C.TEXT_ALTERED)
_NONE: frozenset[Cause] = frozenset()
_BAD_TEXT = _causes(C.GIBBERISH, C.WRONG_LANGUAGE)
_LEAK = _causes(C.REASONING_LEAKED, C.STOPPED_IN_REASONING)
_STOP = _causes(C.STOPPED_EARLY)
_WORSE = _causes(C.ANSWERS_WORSE)


_ALL = (1.0, 1.0, 1.0)
_NUMBERS = frozenset({"gsm8k", "mgsm"})
_LETTERS = frozenset({"bbh", "mmlu_pro", "arc_challenge_chat"})
_WORDS = frozenset({"nq_open", "drop"})
_INTRODUCTIONS = ("Well, as far as I know", "That is a good question", "Let me think about it", "Here is what I found")


def _fault(
    name: str, change: Change, with_baseline: frozenset[Cause], alone: frozenset[Cause], **more: object
) -> Fault:
    return Fault(name=name, change=change, with_baseline=with_baseline, alone=alone, **more)  # type: ignore[arg-type]


_NEW_AFTER: dict[str, Any] = {"after": True, "held_out": True}

FAULTS: tuple[Fault, ...] = (
    # The answer in another form.
    _fault("boxed", _said("So \\boxed{SAID}"), _FORM, _FORM),
    _fault("bold", _said("**SAID**"), _FORM, _FORM),
    _fault("final answer", _said("Final answer: SAID"), _FORM, _FORM),
    _fault("in JSON", _said('{"answer": "SAID"}'), _FORM, _FORM),
    _fault("in a code fence", _said("```\nSAID\n```"), _FORM | _STOP, _FORM | _STOP),
    _fault("in XML", _said("<answer>SAID</answer>"), _FORM, _FORM),
    _fault(
        "spaced letters", _text(lambda text, _: " ".join(text)), _ALTERED | _BAD_TEXT, _ALTERED | _BAD_TEXT, after=True
    ),
    _fault(
        "full-width letters", _text(_full_width), _ALTERED | _BAD_TEXT, _ALTERED | _BAD_TEXT, after=True, held_out=True
    ),
    _fault("HTML escapes", _text(lambda text, _: html.escape(f"<p>{text}</p>")), _ALTERED, _ALTERED, after=True),
    _fault(
        "number entities",
        _text(lambda text, _: "".join(f"&#{ord(each)};" for each in text)),
        _ALTERED | _BAD_TEXT,
        _ALTERED | _BAD_TEXT,
        after=True,
    ),
    _fault(
        "tokenizer's Ġ",
        _text(lambda text, _: text.replace(" ", "Ġ")),
        _ALTERED | _BAD_TEXT,
        _ALTERED | _BAD_TEXT,
        after=True,
    ),
    _fault(
        "tokenizer's ▁",
        _text(lambda text, _: "▁" + text.replace(" ", "▁")),
        _ALTERED | _BAD_TEXT,
        _ALTERED | _BAD_TEXT,
        after=True,
    ),
    _fault(
        "role prefix",
        _text(lambda text, _: f"assistant\n\n{text}"),
        _FORM | _STOP | _causes(C.CHAT_TEMPLATE_DOUBLED, C.CHAT_TEMPLATE_MISSING),
        _FORM | _STOP | _causes(C.CHAT_TEMPLATE_DOUBLED, C.CHAT_TEMPLATE_MISSING),
    ),
    _fault(
        "template marks",
        _text(lambda text, _: f"<|im_start|>assistant\n{text}<|im_end|>"),
        _FORM | _STOP | _causes(C.CHAT_TEMPLATE_DOUBLED, C.CHAT_TEMPLATE_MISSING),
        _FORM | _STOP | _causes(C.CHAT_TEMPLATE_DOUBLED, C.CHAT_TEMPLATE_MISSING),
    ),
    _fault("preamble", _text(lambda text, _: f"Sure! Here it is.\n\n{text}"), *[_FORM | _CUT_SHORT] * 2),
    _fault(
        "question echoed",
        _text(lambda text, _: f"Question: as you asked.\nQ: see above.\n\n{text}"),
        *[_FORM | _CUT_SHORT | _EMPTY] * 2,
    ),
    # Reasoning.
    _fault("think tags", _leaked("<think>", "</think>"), _LEAK, _LEAK),
    _fault("thinking tags", _leaked("<thinking>", "</thinking>"), _LEAK, _LEAK),
    _fault("think without opening", _leaked("", "</think>"), *[_LEAK | _CUT_SHORT] * 2),
    _fault(
        "all in reasoning",
        lambda reply, _: replace(reply, reasoning=reply.text, text=None),
        _causes(C.ANSWER_IN_REASONING),
        _causes(C.ANSWER_IN_REASONING),
        after=True,
    ),
    # Ends.
    _fault(
        "server's cap as stop",
        _capped(45),
        _causes(C.STOPPED_EARLY, C.TRUNCATED),
        _causes(C.STOPPED_EARLY, C.TRUNCATED),
        after=True,
        explained_only=True,
    ),
    _fault(
        "limit too small",
        lambda reply, _: replace(reply, text=(reply.text or "")[:60], finish_reason="length"),
        _causes(C.TRUNCATED),
        _causes(C.TRUNCATED),
        after=True,
        explained_only=True,
    ),
    _fault(
        "stop inside first line",
        _text(lambda text, _: text.split(" ")[0]),
        *[_STOP | _CUT_SHORT] * 2,
        after=True,
        explained_only=True,
    ),
    _fault("empty", _only(text=""), *[_EMPTY] * 2, after=True),
    _fault("null content", _only(text=None), *[_EMPTY] * 2, after=True),
    _fault(
        "tool calls",
        _only(text=None, finish_reason="tool_calls", tool_calls=True),
        _causes(C.EMPTY),
        _causes(C.EMPTY),
        after=True,
    ),
    _fault(
        "content filter",
        _only(text="", finish_reason="content_filter"),
        _causes(C.EMPTY, C.REFUSED),
        _causes(C.EMPTY, C.REFUSED),
        after=True,
    ),
    _fault(
        "runs on",
        _text(lambda text, _: f"{text}\nProblem: Tom has 5 apples and buys 3. How many?\nThe answer is 8."),
        *[_causes(C.RUN_ON, C.EXTRACTION_MISSED, C.STOPPED_EARLY, C.OTHER_FORM)] * 2,
        after=True,
    ),
    # What answers say.
    _fault("refusal", _only(text="I'm sorry, but I cannot help with that."), *[_causes(C.REFUSED)] * 2),
    _fault(
        "refusal in other words",
        _only(text="This request goes against the policy of this service and was declined"),
        *[_causes(C.REFUSED)] * 2,
    ),
    _fault("rubbish", _text(_rubbish), *[_causes(C.GIBBERISH)] * 2),
    _fault("rubbish after token n", _text(_cut_rest), *[_causes(C.GIBBERISH)] * 2),
    _fault("loop", _text(lambda text, _: text[:9] + " the" * 900), *[_causes(C.REPETITIVE, C.TRUNCATED)] * 2),
    _fault("exclamation marks", _only(text="!" * 400), *[_causes(C.REPETITIVE, C.GIBBERISH)] * 2),
    _fault(
        "Chinese",
        _only(text="我认为这个问题的答案很明显，应该仔细考虑每一个条件，然后得出结论"),
        *[_causes(C.WRONG_LANGUAGE)] * 2,
    ),
    _fault(
        "Spanish",
        _only(text="Creo que la respuesta a esta pregunta es muy clara si se miran bien todas las condiciones"),
        *[_causes(C.WRONG_LANGUAGE)] * 2,
    ),
    _fault("constant answer", _constant, *[_causes(C.SAME_ANSWER)] * 2),
    _fault("answers swapped", lambda _, context: context.neighbour, _causes(C.SWAPPED), _NONE),
    _fault("temperature 2", _text(_hot), *[_causes(C.GIBBERISH, C.WRONG_LANGUAGE)] * 2),
    # Numbers, letters, sentences.
    _fault("decimals", _reworded_number("{}.00"), _FORM, _FORM, tasks=_NUMBERS),
    _fault("separators and decimals", _reworded_number("{:,}.00"), _FORM, _FORM, tasks=_NUMBERS),
    _fault("option text", _option_text, _FORM, _FORM, tasks=_LETTERS),
    _fault(
        "sentence cut at a full stop",
        _text(lambda text, context: f"{context.draw.choice(_INTRODUCTIONS)}. {text}"),
        *[_FORM | _CUT_SHORT] * 2,
        tasks=_WORDS,
    ),
    _fault(
        "targets rewritten",
        lambda reply, _: reply,
        _causes(C.DATA_CHANGED),
        _NONE,
        target=_other_target,
        strengths=_ALL,
    ),
    # The server.
    _fault("server errors", _failed, *[_causes(C.SERVER_FAILURES)] * 2, strengths=(0.05, 0.2, 0.5)),
    _fault(
        "another model",
        lambda reply, context: replace(_wrong(reply, context), model="another-model"),
        *[_causes(C.WRONG_MODEL)] * 2,
    ),
    _fault(
        "BOS doubled",
        lambda reply, context: replace(_wrong(reply, context), extra_prompt_tokens=1),
        _causes(C.BOS_DOUBLED),
        _NONE,
        strengths=_ALL,
    ),
    _fault(
        "input cut",
        lambda reply, context: replace(_wrong(reply, context), longest_question=context.longest_kept),
        _causes(C.INPUT_CUT, C.ONE_LENGTH_BAND),
        _causes(C.INPUT_CUT),
        where="longest",
        strengths=(0.15, 0.3, 0.5),
    ),
    _fault(
        "degrades half-way",
        _wrong,
        # A run of few documents asks one task after another: then the last task and the last stretch are the same.
        _causes(C.ONE_TIME_SPAN, C.ONE_TASK),
        _causes(C.ONE_TIME_SPAN),
        where="end",
        strengths=(0.2, 0.35, 0.5),
    ),
    _fault(
        "system prompt ignored",
        lambda reply, context: replace(_wrong(reply, context), reads_system=False),
        _causes(C.SYSTEM_PROMPT_IGNORED),
        _NONE,
        tasks=frozenset({"bbh", "mmlu_pro", "nq_open"}),
        strengths=_ALL,
    ),
    _fault(
        "no chat template",
        lambda reply, context: replace(_wrong(reply, context), turn_tokens=0),
        _causes(C.CHAT_TEMPLATE_MISSING),
        _NONE,
        strengths=_ALL,
    ),
    _fault(
        "rubbish from half-way",
        _text(_rubbish),
        _causes(C.ONE_TIME_SPAN, C.GIBBERISH),
        _causes(C.ONE_TIME_SPAN, C.GIBBERISH),
        where="end",
        strengths=(0.2, 0.35, 0.5),
    ),
    _fault(
        "one bad endpoint",
        lambda reply, context: replace(_wrong(reply, context), endpoint="http://b:8000"),
        *[_causes(C.ONE_ENDPOINT)] * 2,
        strengths=(0.2, 0.35, 0.5),
    ),
    # Forms that were written when the detectors were finished, and are run for their figures alone.
    _fault("upper case", _text(lambda text, _: text.upper()), *[_FORM | _ALTERED] * 2, after=True, held_out=True),
    _fault("zero-width marks", _text(lambda text, _: "\u200b".join(text)), *[_FORM | _ALTERED] * 2, **_NEW_AFTER),
    _fault(
        "no blanks", _text(lambda text, _: text.replace(" ", "")), *[_FORM | _ALTERED | _BAD_TEXT] * 2, **_NEW_AFTER
    ),
    _fault(
        "each word twice",
        _text(lambda text, _: " ".join(f"{word} {word}" for word in text.split(" "))),
        *[_FORM | _ALTERED | _causes(C.REPETITIVE)] * 2,
        **_NEW_AFTER,
    ),
    _fault("percent escapes", _text(lambda text, _: quote(text)), *[_FORM | _ALTERED | _BAD_TEXT] * 2, **_NEW_AFTER),
    _fault(
        "escaped blanks", _text(lambda text, _: text.replace(" ", "\\u0020")), *[_FORM | _ALTERED] * 2, **_NEW_AFTER
    ),
    _fault("backwards", _text(lambda text, _: text[::-1]), *[_FORM | _ALTERED | _BAD_TEXT] * 2, **_NEW_AFTER),
    _fault(
        "first half lost",
        _text(lambda text, _: text[len(text) // 2 :]),
        *[_FORM | _ALTERED | _EMPTY | _CUT_SHORT | _causes(C.TRUNCATED)] * 2,
        **_NEW_AFTER,
    ),
    _fault(
        "first word lost",
        _text(lambda text, _: text.partition(" ")[2]),
        *[_FORM | _ALTERED | _EMPTY | _CUT_SHORT | _causes(C.TRUNCATED)] * 2,
        **_NEW_AFTER,
    ),
    _fault("in a table", _said("| answer |\n| --- |\n| SAID |"), *[_FORM | _STOP] * 2, held_out=True),
    _fault("in LaTeX", _said("$SAID$"), _FORM, _FORM, held_out=True),
    _fault("in YAML", _said("answer: SAID\nconfidence: high"), *[_FORM | _STOP] * 2, held_out=True),
    _fault("as a list item", _said("1. SAID"), *[_FORM | _STOP] * 2, held_out=True),
    _fault(
        "disclaimer",
        _text(lambda text, _: f"{text}\n\nPlease note that I may be wrong: I have 3 sources and 2 doubts."),
        *[_FORM | _causes(C.RUN_ON)] * 2,
        **_NEW_AFTER,
    ),
    _fault(
        "reflection tags", _leaked("<reflection>", "</reflection>"), *[_LEAK | _FORM | _CUT_SHORT] * 2, held_out=True
    ),
    _fault(
        "not in your region",
        _only(text="⚠ This content is not available in your region"),
        *[_FORM | _causes(C.REFUSED, C.SAME_ANSWER)] * 2,
        held_out=True,
    ),
    _fault(
        "Portuguese",
        _only(text="Acho que a resposta a esta pergunta está no texto e não é difícil de encontrar"),
        *[_causes(C.WRONG_LANGUAGE)] * 2,
        held_out=True,
    ),
    _fault(
        "gateway errors",
        lambda reply, _: replace(reply, status=502),
        *[_causes(C.SERVER_FAILURES)] * 2,
        strengths=(0.05, 0.2, 0.5),
        held_out=True,
    ),
    _fault("weaker model", _wrong, _WORSE, _NONE, strengths=(0.2, 0.4, 0.7)),
)
"""All of them."""
