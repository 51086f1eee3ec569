"""A sample's texts in an HTML report, kept short: what prompts begin with in common is written once."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from assay.types import Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.runs.record import AnswerText
    from assay.runs.samples import Filtered, Prompt, RunSample
    from assay.types import Response

    Turn = tuple[str, str]
    """Role and text."""

WHOLE = 20_000
"""Greatest length of any text in a report, in characters; of a longer one the two ends are shown."""

LABEL = 80
"""Characters of an extracted answer or a target in a sample's row; longer ones are in its texts."""

_FACTS = ("finish_reason", "prompt_tokens", "completion_tokens", "model", "logprob", "is_greedy", "endpoint")
_SECONDS = ("latency", "ttft")
_REFERENCE = 60_000
_LEAST_SHARED = 32


def references_of(prompt: Prompt) -> list[Turn]:
    """The turns of a task's first prompt, to which its other prompts refer."""
    return [(role, text[:_REFERENCE]) for role, text in _turns(prompt)]


def shared_with(prompt: Prompt, references: Sequence[Turn]) -> int:
    """The length of what its last turn and the reference's begin with in common."""
    turns = 1 if isinstance(prompt.content, str) else len(prompt.content)
    if turns != len(references):
        return 0
    return _shared(prompt.content if isinstance(prompt.content, str) else prompt.content[-1].content, references[-1][1])


def up_to_blank_line(text: str) -> str:
    """`text` up to and including its last blank line; nothing if there is none."""
    return text[: text.rfind("\n\n") + 2] if "\n\n" in text else ""


def extracted_from(sample: RunSample, found: Filtered) -> str:
    """What a filter extracted; where choices were weighed by their log-probabilities, the likeliest of them."""
    if len(sample.responses) < 2:
        return found.extracted
    weighed = [answer.logprob for answer in sample.answers if answer.logprob is not None]
    if len(weighed) < 2 or len(weighed) != len(sample.prompts):
        return found.extracted
    likeliest = weighed.index(max(weighed))
    return f"{likeliest}: {(sample.prompts[likeliest].continuation or '').strip()}"


def entry_of(sample: RunSample, references: Sequence[Turn], before: AnswerText | None) -> dict[str, Any]:
    """A sample's texts, without those that its row holds. Keys are short: there are thousands of them in a file.

    Args:
        sample: the sample.
        references: the turns of its task's first prompt.
        before: the baseline's answer.

    Returns:
        ``p``: prompts, each ``[turns, continuation]``, with turns as :func:`_written` gives them; ``a``: responses;
        ``t``: target; ``f``: by filter ``[extracted, scores]``; ``x``: ``[cause, message]`` of a failure; ``b``: the
        baseline's ``[answer, extracted]``. A text is a string, or what :func:`cut` leaves of it.
    """
    entry: dict[str, Any] = {
        "p": _prompts(sample.prompts, references),
        "a": [_response(response) for response in sample.responses],
    }
    if len(sample.target) > LABEL:
        entry["t"] = cut(sample.target, WHOLE)
    filters = {
        name: [cut(extracted, WHOLE), {metric: _plain(score) for metric, score in found.metrics.items()}]
        for name, found in sample.filters.items()
        if len(extracted := extracted_from(sample, found)) > LABEL or _has_verdicts(found)
    }
    if filters:
        entry["f"] = filters
    if sample.failure is not None:
        entry["x"] = [sample.failure.cause, cut(sample.failure.message, WHOLE)]
    if before is not None:
        entry["b"] = [cut(before.response, WHOLE), cut(before.extracted, WHOLE)]
    return entry


def _has_verdicts(found: Filtered) -> bool:
    """Whether a score is a list, which a row does not hold."""
    return any(isinstance(score, tuple) for score in found.metrics.values())


def _prompts(prompts: Sequence[Prompt], references: Sequence[Turn]) -> list[Any]:
    """By prompt ``[turns, continuation]``; turns are null where they are those of the prompt before."""
    written = []
    for number, prompt in enumerate(prompts):
        repeated = number > 0 and prompt.content == prompts[number - 1].content
        turns = None if repeated else _written(_turns(prompt), references)
        written.append([turns] if prompt.continuation is None else [turns, cut(prompt.continuation, WHOLE)])
    return written


def _turns(prompt: Prompt) -> list[Turn]:
    if isinstance(prompt.content, str):
        return [("", prompt.content)]
    return [(turn.role, turn.content) for turn in prompt.content]


def _written(turns: Sequence[Turn], references: Sequence[Turn]) -> list[Any]:
    """How many turns are the reference's, then by turn ``[role, how much of it is in the reference, the rest]``."""
    equal = max(0, len(turns) - 1) if turns[:-1] == references[:-1] else 0  # nearly always
    for turn, reference in zip(turns[equal:], references[equal:], strict=False):
        if turn != reference:
            break
        equal += 1
    ends = [text for _, text in references[equal : len(turns)]] + [""] * (len(turns) - len(references))
    return [equal, *map(_turn, turns[equal:], ends)]


def _turn(turn: Turn, reference: str) -> list[Any]:
    role, text = turn
    shared = _shared(text, reference)
    return [role, utf16_length(text[:shared]), cut(text[shared:], WHOLE)]


@functools.lru_cache(maxsize=1)  # called twice in a row for each prompt's last turn
def _shared(text: str, reference: str) -> int:
    """The length of what the two begin with in common; 0 if it is short."""
    if text == reference:
        return len(text)
    if text[:_LEAST_SHARED] != reference[:_LEAST_SHARED]:
        return 0
    low, high = 0, min(len(text), len(reference))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text[low:middle] == reference[low:middle] else (low, middle - 1)
    return low if low >= _LEAST_SHARED else 0


def utf16_length(text: str) -> int:
    """The length of a text as JavaScript counts it."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _response(response: Response) -> dict[str, Any]:
    if isinstance(response, Failure):
        return {"cause": response.cause, "text": cut(response.message, WHOLE), "attempts": response.attempts}
    said: dict[str, Any] = {"text": None if response.text is None else cut(response.text, WHOLE)}
    if response.reasoning:
        said["reasoning"] = cut(response.reasoning, WHOLE)
    said |= {name: value for name in _FACTS if (value := getattr(response, name)) is not None and _is_finite(value)}
    said |= {name: round(seconds, 4) for name in _SECONDS if (seconds := getattr(response, name))}
    if response.attempts > 1:
        said["attempts"] = response.attempts
    return said


def limited(entry: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """An entry with its texts cut further; of a prompt's earlier turns only what is in the reference stays."""
    prompts = [[turns and _limited_turns(turns, limit), *rest] for turns, *rest in entry["p"]]
    answers = [
        {name: _recut(value, limit) if name in ("text", "reasoning") else value for name, value in answer.items()}
        for answer in entry["a"]
    ]
    limited = {**entry, "p": prompts, "a": answers}
    if "t" in entry:
        limited["t"] = _recut(entry["t"], limit)
    if "f" in entry:
        limited["f"] = {name: [_recut(extracted, limit), metrics] for name, (extracted, metrics) in entry["f"].items()}
    limited.pop("b", None)  # two pieces of texts cannot be compared
    return limited


def _limited_turns(turns: Sequence[Any], limit: int) -> list[Any]:
    equal, *others = turns
    limits = [0] * (len(others) - 1) + [limit]
    return [equal, *([*turn, _recut(rest, most)] for (*turn, rest), most in zip(others, limits, strict=False))]


def cut(text: str, limit: int) -> str | list[Any]:
    """`text`, or its two ends with the number of characters left out between them; the end is where results are."""
    if len(text) <= limit:
        return text
    tail = (limit + 1) // 2
    return [text[: limit - tail], len(text) - limit, text[len(text) - tail :]]


def _recut(text: str | list[Any] | None, limit: int) -> str | list[Any] | None:
    """A text that may already be cut, cut further."""
    if text is None or isinstance(text, str):
        return None if text is None else cut(text, limit)
    head, omitted, tail = text
    if len(head) + len(tail) <= limit:
        return text
    kept = (limit + 1) // 2
    head, tail = head[: limit - kept], tail[len(tail) - kept :] if kept else ""
    return [head, omitted + len(text[0]) + len(text[2]) - len(head) - len(tail), tail]


def _plain(score: Any) -> Any:
    """A score for JSON: numbers that it has none for as text."""
    return score if not isinstance(score, float) or _is_finite(score) else str(score)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or abs(value) < float("inf")
