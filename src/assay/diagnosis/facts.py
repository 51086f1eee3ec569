"""Reduces each sample to the few figures and signs that detectors need, so that even large runs fit into memory."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from assay._util.batches import batches
from assay.diagnosis.extraction import Where, golds_of, missed_answer
from assay.diagnosis.repairs import CHARACTERS_CHANGED, steps_of
from assay.diagnosis.shapes import Shape, shape_of
from assay.diagnosis.texts import REASONING_TAG, Sign, has_marks, signs_of
from assay.runs.record import document_mean
from assay.types import FailureCause, MetricKey, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from assay.runs.samples import Prompt, RunSample, RunSamples, SampleReader
    from assay.types import Answer

_LONGEST = 20_000
"""Characters of an answer that are analysed, half from each end."""
_EXCERPT = 60
"""Characters kept of an answer that the filter found nothing in."""
_DIGITS = 16
"""Hexadecimal digits kept of a hash: 64 bits."""
COMPARE_WITH_TARGET = frozenset({"exact_match", "em", "acc", "math_verify", "quasi_exact_match"})
"""Metrics that compare the whole answer with the target."""
OF_SHORT_ANSWERS = COMPARE_WITH_TARGET | {"f1"}
"""Metrics by which a text's conclusion alone may be scored. Others judge the whole text."""
_SAID_TO_BE_THE_ANSWER = (Where.BOXED, Where.HASHES, Where.PHRASE, Where.BEFORE_NEXT_QUESTION)
_CONCLUDED = ".!?)}]\"'”’`*。！？"


class SampleFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is known about one sample, under the metric of the triage."""

    task: str
    doc_id: int
    score: float | None
    """Between 0 and 1; None for failed samples."""
    failure: FailureCause | None = None
    outcome: Outcome = Outcome.FAILED
    signs: frozenset[Sign] = frozenset()
    """Signs in the text, whether the answer is right or wrong."""
    altered: tuple[str, ...] = ()
    """Names of the repairs that change the text (:mod:`assay.diagnosis.repairs`), in their order."""
    repaired: tuple[float, ...] = ()
    """The score after each of these repairs, by the task's own filter and metric; empty if it was not measured."""
    missed: Where | None = None
    """Where the text states the right answer, if the filter missed it."""
    other_filter: bool = False
    """Another filter of the task found the right answer."""
    is_generated: bool = False
    """The answer is text, not a log-probability."""
    has_reasoning: bool = False
    """The server returned reasoning separately from the content."""
    answer_in_reasoning: bool = False
    """The reasoning ends with the right answer."""
    is_unfinished: bool = False
    """The text (or, without text, the reasoning) breaks off."""
    is_open_thought: bool = False
    """The last reasoning tag in the content is an opening one."""
    finish_reason: str | None = None
    characters: int = 0
    """Of content and reasoning together."""
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    prompt_characters: int = 0
    messages: int = 0
    """Messages of the conversation; 0 for plain text."""
    choices: int = 0
    """How many answers the document offers; 0 if that is not known."""
    max_tokens: int | None = None
    """The token limit of the request."""
    temperature: float = 0.0
    stops: tuple[str, ...] = ()
    """The stop strings of the request."""
    extracted: str = ""
    excerpt: str = ""
    """The whole of a short wrong answer; of a longer one that the filter found nothing in, its end."""
    model: str | None = None
    """The model named in the reply, if it is not the one asked for."""
    endpoint: str | None = None
    time: float | None = None
    prompt_hash: int | None = None
    """Of its hash 64 bits, enough to tell prompts apart."""
    system_characters: int = 0
    """Characters of the system message."""
    doc_hash: int | None = None
    """Of the document's hash 64 bits."""
    target_hash: int | None = None
    """Of the right answer's hash 64 bits."""
    gold: str = ""
    """The right answer, if the target is one short answer."""
    shape: Shape | None = None
    """How the answer looks; None without a text."""

    @property
    def is_plain(self) -> bool:
        """Whether the text shows no sign, and is written in the model's own characters."""
        return not self.signs and CHARACTERS_CHANGED.isdisjoint(self.altered)

    @property
    def place(self) -> tuple[str, int]:
        """Task and document."""
        return self.task, self.doc_id


Measure = Callable[[Sequence["RunSample"], Sequence[SampleFacts]], Sequence[SampleFacts]]
"""Adds to the facts of samples what is measured on their texts."""


def facts_of_run(
    samples: RunSamples,
    metrics: Mapping[str, str | None],
    reader: SampleReader | None = None,
    measure: Measure = lambda _, facts: facts,
) -> Iterator[SampleFacts]:
    """The facts of every sample of some tasks.

    Args:
        samples: the run.
        metrics: by task, the metric key; None: the task has no usable metric.
        reader: reads the samples; it may also return those of other tasks.
        measure: adds what is measured on the samples' texts.
    """
    for batch in batches(samples.of_tasks(metrics) if reader is None else reader(samples)):
        ours = [sample for sample in batch if sample.task in metrics]
        yield from measure(ours, [facts_of(sample, metrics[sample.task]) for sample in ours])


def facts_of(sample: RunSample, key: str | None) -> SampleFacts:
    """The facts of one sample under one metric key; without a key, only whether it was answered."""
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
    is_wrong = score is not None and score < 1
    outcome = Outcome.ANSWERED if filtered is None else filtered.outcome
    return SampleFacts(
        task=sample.task,
        doc_id=sample.doc_id,
        score=score,
        outcome=outcome,
        other_filter=is_wrong and _is_right_by_another_filter(sample, metric, filter_name),
        extracted="" if filtered is None else sys.intern(filtered.extracted[:80]),
        excerpt=_excerpt(first, outcome) if is_wrong else "",
        choices=_number_of_choices(sample, first),
        model=_first([answer.model for answer in answers]),
        endpoint=_first([answer.endpoint for answer in answers]),
        time=max(sample.times, default=None),
        prompt_tokens=None if first is None else first.prompt_tokens,
        prompt_hash=_bits(sample.prompt_hash),
        doc_hash=_bits(sample.doc_hash),
        target_hash=_bits(sample.target_hash),
        **_prompt_facts(prompt, text),
        **(
            _answer_facts(first, sample, text, metric if is_wrong else None)
            if first is not None and first.logprob is None
            else {}
        ),
    )


def _bits(digits: str) -> int | None:
    """A part of a hash; None where a damaged file has something else in its place."""
    try:
        return int(digits[:_DIGITS], 16)
    except (TypeError, ValueError):
        return None


def _is_right_by_another_filter(sample: RunSample, metric: str, filter_name: str) -> bool:
    others = [each.metrics.get(metric) for name, each in sample.filters.items() if name != filter_name]
    return any(other is not None and document_mean(other) >= 1 for other in others)


def _first(names: list[str | None]) -> str | None:
    """The first name that there is."""
    for name in names:
        if name:
            return sys.intern(name)
    return None


def _excerpt(answer: Answer | None, outcome: Outcome) -> str:
    text = "" if answer is None else (answer.text or "").rstrip()
    if len(text) <= _EXCERPT:
        return sys.intern(text)
    return "…" + text[-_EXCERPT:] if outcome is Outcome.UNEXTRACTED else ""


def _prompt_facts(prompt: Prompt | None, text: str) -> dict[str, Any]:
    if prompt is None:
        return {}
    settings = prompt.settings
    until = settings.get("until")
    limit = settings.get("max_gen_toks", settings.get("max_tokens"))
    temperature = settings.get("temperature", 0)
    first = None if isinstance(prompt.content, str) or not prompt.content else prompt.content[0]
    return {
        "prompt_characters": len(text),
        "system_characters": len(first.content) if first is not None and first.role == "system" else 0,
        "messages": 0 if isinstance(prompt.content, str) else len(prompt.content),
        "max_tokens": limit if isinstance(limit, int) else None,
        "temperature": float(temperature) if isinstance(temperature, int | float) else 0.0,
        "stops": _stops(until),
    }


def _stops(until: Any) -> tuple[str, ...]:
    return _shared(tuple(map(str, until)) if isinstance(until, list) else (until,) if isinstance(until, str) else ())


@functools.lru_cache(maxsize=64)
def _shared(texts: tuple[str, ...]) -> tuple[str, ...]:
    """One tuple for equal stop strings or repairs, which nearly all samples have; it saves memory."""
    return texts


def _answer_facts(answer: Answer, sample: RunSample, asked: str, missing: str | None) -> dict[str, Any]:
    """The facts of an answer; more of them if it has no full score under the metric `missing`."""
    text, reasoning = shortened(answer.text or ""), shortened(answer.reasoning or "")
    steps = steps_of(text, asked)
    written = next((step.text for step in reversed(steps) if step.is_of_characters), text)
    facts: dict[str, Any] = {
        "is_generated": True,
        "has_reasoning": bool(reasoning.strip()),
        "finish_reason": answer.finish_reason and sys.intern(answer.finish_reason),
        "characters": len(answer.text or "") + len(answer.reasoning or ""),
        "completion_tokens": answer.completion_tokens,
        "signs": signs_of(written, asked, sample.target),
        "altered": _shared(tuple([step.name for step in steps])),
        "shape": shape_of(text) if text else None,
    }
    golds = golds_of(sample.target)
    facts["gold"] = sys.intern(golds[0]) if len(golds) == 1 else ""
    if missing is None:
        return facts
    if missing not in COMPARE_WITH_TARGET or len(sample.responses) > 1:
        golds = ()
    said = text if text.strip() else reasoning
    return facts | {
        "missed": _missed(text, golds, is_whole=answer.finish_reason != "length"),
        "answer_in_reasoning": not text.strip() and any(missed_answer(reasoning, gold) for gold in golds),
        "is_open_thought": _ends_in_thought(text),
        "is_unfinished": bool(said.strip()) and said.rstrip()[-1] not in _CONCLUDED,
    }


def _missed(text: str, golds: Sequence[str], *, is_whole: bool) -> Where | None:
    """Where the text states a right answer; a text that was cut off must mark it as the answer."""
    own = _after_thoughts(text) if golds else text
    places = (missed_answer(own, gold) for gold in golds)
    return next((where for where in places if where and (is_whole or where in _SAID_TO_BE_THE_ANSWER)), None)


def _ends_in_thought(text: str) -> bool:
    marks = REASONING_TAG.findall(text) if has_marks(text) else []
    return bool(marks) and not re.search(r"/|end_of", marks[-1])


def _after_thoughts(text: str) -> str:
    """The text after the last reasoning tag; the whole text if nothing follows the tag."""
    after = REASONING_TAG.split(text)[-1] if has_marks(text) else text
    return after if after.strip() else text


def shortened(text: str) -> str:
    """The part of a text that is analysed: of a long one its two ends."""
    if len(text) <= _LONGEST:
        return text
    return text[: _LONGEST // 2] + text[-_LONGEST // 2 :]


class _Choices(msgspec.Struct, frozen=True):
    """The fields of a document that may hold the answers to choose from."""

    choices: Any = None
    options: Any = None
    endings: Any = None


_choices_decoder = msgspec.json.Decoder(_Choices)


def _choices_of(sample: RunSample) -> _Choices | None:
    """The choices of a document; None if the document is not an object."""
    try:
        return _choices_decoder.decode(sample.doc)
    except (msgspec.DecodeError, UnicodeEncodeError):  # no record, or JSON that only the standard library takes
        document = sample.document
        return _Choices(*map(document.get, _Choices.__struct_fields__)) if isinstance(document, dict) else None


def _number_of_choices(sample: RunSample, first: Answer | None) -> int:
    """How many answers a document offers, in the formats of lm-eval's tasks."""
    offering = _choices_of(sample)
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
