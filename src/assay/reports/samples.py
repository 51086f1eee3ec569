"""A run's samples for the terminal: prompt, answer, what was extracted, scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from assay._util.text import printable, visible
from assay.types import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.runs.compare import Flip
    from assay.runs.record import Score
    from assay.runs.sample_choice import ChosenSample
    from assay.runs.samples import Prompt, RunSample
    from assay.types import Answer, Response

_LABEL_WIDTH = 11
_SHOWN_OF_PROMPT = 600
_SHOWN_OF_ANSWER = 3000
_SHOWN_IN_FULL = 1_000_000


def sample_text(chosen: ChosenSample, *, full: bool) -> Text:
    """One sample.

    Args:
        chosen: the sample.
        full: whole prompts and answers (a million characters of each); else the end of the prompt, where the question
            is, and of a long answer its beginning and end.
    """
    sample = chosen.sample
    text = Text()
    text.append(f"{printable(sample.task)} {sample.doc_id}", style="bold")
    for line in _verdicts(sample):
        text.append("   ").append_text(line)
    text.append("\n")
    for label, content, style in _parts(chosen, full=full):
        text.append(_block(label, content), style=style)
    return text


def _parts(chosen: ChosenSample, *, full: bool) -> Iterator[tuple[str, str, str]]:
    sample = chosen.sample
    prompt_length = _SHOWN_IN_FULL if full else _SHOWN_OF_PROMPT
    answer_length = _SHOWN_IN_FULL if full else _SHOWN_OF_ANSWER
    if sample.prompts:
        yield "prompt", _end(_prompt(sample.prompts[0]), prompt_length), "dim"
    for number, response in enumerate(sample.responses):
        label = "answer" if len(sample.responses) == 1 else f"answer {number + 1}"
        if number < len(sample.prompts) and sample.prompts[number].continuation is not None:
            yield "choice", _middle(sample.prompts[number].continuation or "", answer_length), ""
        if not isinstance(response, Failure) and response.reasoning:
            yield "reasoning", _middle(response.reasoning, answer_length), "italic"
        yield label, _said(response, answer_length), ""
    if sample.failure is not None and not sample.responses:
        yield "failed", f"{sample.failure.cause}: {sample.failure.message}", "red"
    for name, filtered in sample.filters.items():
        yield "extracted", f"{_middle(filtered.extracted, answer_length)}   ({name})", ""
    if sample.failure is None:
        yield "target", _middle(sample.target, answer_length), ""
    for flip in chosen.flips:
        yield "baseline", _flip(flip, answer_length), "cyan"


def _verdicts(sample: RunSample) -> Iterator[Text]:
    if sample.failure is not None:
        yield Text(f"failed: {sample.failure.cause}", style="red")
        return
    for name, filtered in sample.filters.items():
        for metric, score in filtered.metrics.items():
            style = "green" if _is_best(score) else "red"
            yield Text(f"{printable(metric)},{printable(name)} {_score(score)} ", style=style).append(
                str(filtered.outcome), style="dim"
            )


def _is_best(score: Score) -> bool:
    return all(score) if isinstance(score, tuple) else score >= 1


def _score(score: Score) -> str:
    return f"{sum(score)}/{len(score)}" if isinstance(score, tuple) else f"{score:g}"


def _prompt(prompt: Prompt) -> str:
    if isinstance(prompt.content, str):
        return prompt.content
    return "\n".join(f"[{turn.role}] {turn.content}" for turn in prompt.content)


def _said(response: Response, length: int) -> str:
    if isinstance(response, Failure):
        return f"none: {response.cause}: {response.message}"
    if response.logprob is not None:
        return f"log-probability {response.logprob:g}{', greedy' if response.is_greedy else ''}"
    return f"{_middle(response.text or '', length)}\n{_circumstances(response)}"


def _circumstances(answer: Answer) -> str:
    tokens = None if answer.completion_tokens is None else f"{answer.completion_tokens} tokens"
    seconds = f"{answer.latency:.2f} s" if answer.latency else None
    ended = None if answer.finish_reason is None else f"ended by {answer.finish_reason}"
    return f"({', '.join(word for word in (ended, tokens, seconds) if word) or 'nothing else is known'})"


def _flip(flip: Flip, length: int) -> str:
    if flip.before is None:
        return f"{flip.metric} {flip.change}; its text was not kept"
    extracted, said = (_middle(text, length) for text in (flip.before.extracted, flip.before.response))
    return f"{flip.metric} {flip.change}: {extracted} <- {said}"


def _end(text: str, length: int) -> str:
    return text if len(text) <= length else f"… {len(text) - length:,} characters before this\n{text[-length:]}"


def _middle(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"


def _block(label: str, content: str) -> str:
    """Lines with a hanging label; whatever a model wrote is made visible first."""
    lines = visible(content).expandtabs(4).split("\n")
    margin = " " * _LABEL_WIDTH
    return "".join(f"{label.ljust(_LABEL_WIDTH) if not place else margin}{line}\n" for place, line in enumerate(lines))
