"""Each sample reduced to what detectors look at: a few figures and signs, so that no run is too large."""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.batches import batches
from assay.diagnosis.extraction import Where, gold_of, missed_answer
from assay.diagnosis.texts import REASONING_TAG, Sign, has_marks, signs_of
from assay.runs.record import document_mean
from assay.types import FailureCause, MetricKey, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.runs.samples import Prompt, RunSample, RunSamples, SampleReader
    from assay.types import Answer

_PROMPT_END = 3000
"""Characters of a prompt that are looked at."""
_LONGEST = 20_000
"""Characters of an answer that are looked at, from both ends."""
_DIGITS = 16
"""Of a hash: 64 bits."""
_COMPARES_WITH_TARGET = frozenset({"exact_match", "em", "acc", "math_verify", "quasi_exact_match"})
"""Metrics under which an answer is right if it is the target."""
_SAID_TO_BE_THE_ANSWER = (Where.BOXED, Where.HASHES, Where.PHRASE, Where.BEFORE_NEXT_QUESTION)
_CONCLUDED = ".!?)}]\"'”’`*。！？"


class SampleFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known of one sample, under the metric that is looked at."""

    task: str
    doc_id: int
    score: float | None
    """Between 0 and 1; None for failed samples."""
    failure: FailureCause | None = None
    outcome: Outcome = Outcome.FAILED
    signs: frozenset[Sign] = frozenset()
    """What the text shows, whether it is right or not."""
    missed: Where | None = None
    """Where the right answer stands, if the filter missed it."""
    other_filter: bool = False
    """Another filter of the task found the right answer."""
    is_generated: bool = False
    """The answer is text, no log-probability."""
    has_reasoning: bool = False
    """The server gave reasoning apart from the content."""
    answer_in_reasoning: bool = False
    """The reasoning ends with the right answer."""
    is_unfinished: bool = False
    """What there is of it, text or reasoning, breaks off."""
    is_open_thought: bool = False
    """The last mark of reasoning in the content is one that opens it."""
    finish_reason: str | None = None
    characters: int = 0
    """Of content and reasoning together."""
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    prompt_characters: int = 0
    messages: int = 0
    """Turns of the conversation; 0 for plain text."""
    choices: int = 0
    """Answers to choose from, where the document says how many."""
    max_tokens: int | None = None
    """The token limit that was asked for."""
    temperature: float = 0.0
    stops: tuple[str, ...] = ()
    """The stop strings that were asked for."""
    extracted: str = ""
    model: str | None = None
    """The model in the reply, where it is not the one asked for."""
    endpoint: str | None = None
    time: float | None = None
    prompt_hash: int | None = None
    """Of its hash 64 bits, enough to tell prompts apart."""

    @property
    def place(self) -> tuple[str, int]:
        """Task and document."""
        return self.task, self.doc_id


def facts_of_run(
    samples: RunSamples, metrics: Mapping[str, str | None], reader: SampleReader | None = None
) -> Iterator[SampleFacts]:
    """The facts of every sample of some tasks.

    Args:
        samples: the run.
        metrics: by task, the metric key that is looked at; None: no score is known.
        reader: reads the samples, those of other tasks too.
    """
    for batch in batches(samples.of_tasks(metrics) if reader is None else reader(samples)):
        yield from [facts_of(sample, metrics[sample.task]) for sample in batch if sample.task in metrics]


def facts_of(sample: RunSample, key: str | None) -> SampleFacts:
    """The facts of one sample under one metric key; without one, nothing but that there is an answer."""
    if sample.failure is not None:
        endpoint = next((response.endpoint for response in sample.responses if response.endpoint), None)
        return SampleFacts(
            task=sample.task,
            doc_id=sample.doc_id,
            score=None,
            failure=sample.failure.cause,
            endpoint=endpoint,
            time=max(sample.times, default=None),
        )
    if key is None:
        return SampleFacts(task=sample.task, doc_id=sample.doc_id, score=None, outcome=Outcome.ANSWERED)
    metric, filter_name = MetricKey.read(key)
    filtered = sample.filters.get(filter_name)
    found = None if filtered is None else filtered.metrics.get(metric)
    score = None if found is None else document_mean(found)
    answers = sample.answers
    first = answers[0] if answers else None
    prompt = sample.prompts[0] if sample.prompts else None
    text = "" if prompt is None else prompt.text
    others = [each.metrics.get(metric) for name, each in sample.filters.items() if name != filter_name]
    is_wrong = score is not None and score < 1
    return SampleFacts(
        task=sample.task,
        doc_id=sample.doc_id,
        score=score,
        outcome=Outcome.ANSWERED if filtered is None else filtered.outcome,
        other_filter=is_wrong and any(other is not None and document_mean(other) >= 1 for other in others),
        extracted="" if filtered is None else sys.intern(filtered.extracted[:80]),
        choices=_choices(sample, first),
        model=next((sys.intern(answer.model) for answer in answers if answer.model), None),
        endpoint=next((sys.intern(answer.endpoint) for answer in answers if answer.endpoint), None),
        time=max(sample.times, default=None),
        prompt_tokens=None if first is None else first.prompt_tokens,
        prompt_hash=int(sample.prompt_hash[:_DIGITS], 16) if sample.prompt_hash else None,
        **_of_prompt(prompt, text),
        **(
            _of_answer(first, sample, text[-_PROMPT_END:], metric if is_wrong else None)
            if first is not None and first.logprob is None
            else {}
        ),
    )


def _of_prompt(prompt: Prompt | None, text: str) -> dict[str, Any]:
    if prompt is None:
        return {}
    settings = prompt.settings
    until = settings.get("until")
    limit = settings.get("max_gen_toks", settings.get("max_tokens"))
    temperature = settings.get("temperature", 0)
    return {
        "prompt_characters": len(text),
        "messages": 0 if isinstance(prompt.content, str) else len(prompt.content),
        "max_tokens": limit if isinstance(limit, int) else None,
        "temperature": float(temperature) if isinstance(temperature, int | float) else 0.0,
        "stops": _stops(until),
    }


def _stops(until: Any) -> tuple[str, ...]:
    return _kept(tuple(map(str, until)) if isinstance(until, list) else (until,) if isinstance(until, str) else ())


@functools.lru_cache(maxsize=64)
def _kept(stops: tuple[str, ...]) -> tuple[str, ...]:
    """The same tuple for the same stop strings, which nearly all samples share."""
    return stops


def _of_answer(answer: Answer, sample: RunSample, prompt_end: str, missing: str | None) -> dict[str, Any]:
    """What the answer shows; more if it lacks a full score under the metric `missing`."""
    text, reasoning = _shortened(answer.text or ""), _shortened(answer.reasoning or "")
    facts: dict[str, Any] = {
        "is_generated": True,
        "has_reasoning": bool(reasoning.strip()),
        "finish_reason": answer.finish_reason and sys.intern(answer.finish_reason),
        "characters": len(answer.text or "") + len(answer.reasoning or ""),
        "completion_tokens": answer.completion_tokens,
        "signs": signs_of(text, prompt_end, sample.target),
    }
    if missing is None:
        return facts
    gold = gold_of(sample.target) if missing in _COMPARES_WITH_TARGET and len(sample.responses) == 1 else None
    said = text if text.strip() else reasoning
    return facts | {
        "missed": _missed(text, gold, is_whole=answer.finish_reason != "length"),
        "answer_in_reasoning": bool(gold and not text.strip() and missed_answer(reasoning, gold)),
        "is_open_thought": _ends_in_thought(text),
        "is_unfinished": bool(said.strip()) and said.rstrip()[-1] not in _CONCLUDED,
    }


def _missed(text: str, gold: str | None, *, is_whole: bool) -> Where | None:
    """Where the right answer stands; in a text that is cut off only if the text says that it is the answer."""
    where = None if gold is None else missed_answer(_after_thoughts(text), gold)
    return where if is_whole or where in _SAID_TO_BE_THE_ANSWER else None


def _ends_in_thought(text: str) -> bool:
    marks = REASONING_TAG.findall(text) if has_marks(text) else []
    return bool(marks) and not re.search(r"/|end_of", marks[-1])


def _after_thoughts(text: str) -> str:
    """The text after the last mark of reasoning; all of it where nothing follows."""
    after = REASONING_TAG.split(text)[-1] if has_marks(text) else text
    return after if after.strip() else text


def _shortened(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    return text[: _LONGEST // 2] + text[-_LONGEST // 2 :]


class _Offering(msgspec.Struct, frozen=True):
    """What of a document may hold the answers to choose from."""

    choices: Any = None
    options: Any = None
    endings: Any = None


_offering = msgspec.json.Decoder(_Offering)


def _offering_of(sample: RunSample) -> _Offering | None:
    """None for a document that is no record."""
    try:
        return _offering.decode(sample.doc)
    except (msgspec.DecodeError, UnicodeEncodeError):  # no record, or JSON that only the standard library takes
        document = sample.document
        return _Offering(*map(document.get, _Offering.__struct_fields__)) if isinstance(document, dict) else None


def _choices(sample: RunSample, first: Answer | None) -> int:
    """How many answers a document offers, in the shapes that lm-eval's tasks have."""
    offering = _offering_of(sample)
    if offering is None:
        return 0
    for value in (offering.choices, offering.options, offering.endings):
        if isinstance(value, dict):
            value = value.get("text") or value.get("label")
        if isinstance(value, list):
            return len(value)
    if first is not None and first.logprob is not None:
        return len(sample.prompts)
    return 0
