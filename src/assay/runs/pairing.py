"""Pairs the documents of two runs of a task, and names every difference that makes them incomparable."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.runs.record import Part, Score, TaskRecord

REQUESTS = "requests"
"""Under which name a task's settings hold what was done to its requests."""
_SHOWN = 60
"""Characters shown of a setting's value."""


class Pair(NamedTuple):
    """One document in both runs."""

    doc_id: int
    """The document's number in the candidate."""
    before: int | None
    """Its place among the baseline's scored documents; None if it failed there."""
    after: int | None
    """Its place among the candidate's scored documents; None if it failed there."""


class Pairing(msgspec.Struct, frozen=True, kw_only=True):
    """Which documents of two runs are the same."""

    baseline: TaskRecord
    candidate: TaskRecord
    pairs: tuple[Pair, ...]
    """In the candidate's order. Documents with the same content but another prompt are among them."""
    mismatches: tuple[str, ...]
    """Differences other than the answers, as messages; empty if the runs can be compared."""
    partial: str | None = None
    """The message among ``mismatches`` that the baseline asked only part of the documents; None if it asked all."""
    not_asked: int
    """How many documents only the baseline has."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The mismatches without ``partial``."""
        return tuple(each for each in self.mismatches if each != self.partial)

    def scores(self, key: str) -> list[tuple[Score | None, Score | None]]:
        """The scores of each pair in baseline and candidate under one metric key; None where the document failed.

        Raises:
            KeyError: one of the runs has no such scores.
        """
        before, after = self.baseline.scores[key], self.candidate.scores[key]
        return [
            (None if pair.before is None else before[pair.before], None if pair.after is None else after[pair.after])
            for pair in self.pairs
        ]


def pair_tasks(baseline: TaskRecord, candidate: TaskRecord) -> Pairing:
    """Pair the documents of two runs of one task.

    Two documents are the same if their content and target are equal. A document is first looked for under its own
    number in the other run, then under all others.
    """
    same = _same_documents(baseline, candidate)
    pairs = sorted([*same, *_failed_documents(baseline, candidate, same)], key=lambda pair: pair.doc_id)
    changed_prompts = sum(
        baseline.prompts[pair.before] != candidate.prompts[pair.after]
        for pair in pairs
        if pair.before is not None and pair.after is not None
    )
    unknown = len(candidate.doc_ids) + len(candidate.failed) - len(pairs)
    mismatches = settings_changes(baseline.settings, candidate.settings)
    partial = None
    if unknown and baseline.part is not None and unknown <= baseline.part.population - baseline.part.held:
        partial = partial_message(baseline.part)
        mismatches.append(partial)
    elif unknown:
        of = len(candidate.doc_ids) + len(candidate.failed)
        mismatches.append(f"data: {unknown} of {of} documents are not in the baseline")
    if changed_prompts:
        mismatches.append(f"prompts: {changed_prompts} of {len(pairs)} differ")
    return Pairing(
        baseline=baseline,
        candidate=candidate,
        pairs=tuple(pairs),
        mismatches=tuple(mismatches),
        partial=partial,
        not_asked=len(baseline.doc_ids) + len(baseline.failed) - len(pairs),
    )


def partial_message(part: Part) -> str:
    """A message that a baseline lacks documents because its run asked only part of them."""
    return f"the baseline holds {part}"


def settings_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """A message for every setting that differs, with both values; none if one run has not recorded its settings.

    How requests were changed is compared only if both runs have recorded it; lm-eval's do not.
    """
    if not before or not after:
        return []
    silent = {REQUESTS} - (before.keys() & after.keys())
    known = ({name: value for name, value in each.items() if name not in silent} for each in (before, after))
    return list(_changes("", *known))


def _changes(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys([*before, *after]):
            yield from _changes(f"{path}.{name}" if path else name, before.get(name), after.get(name))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _changes(f"{path}[{place}]", old, new)
    elif before != after:
        yield f"{path}: {_shortened(before)} -> {_shortened(after)}"


def _shortened(value: Any) -> str:
    text = "not set" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class BaselineDocuments:
    """A task's scored documents in the baseline, found by their content. Each is returned once."""

    def __init__(self, task: TaskRecord) -> None:
        self._documents = task.documents
        self._numbered = dict(zip(task.doc_ids, range(len(task.doc_ids)), strict=True))
        self._places: dict[str, list[int]] = defaultdict(list)
        for place in reversed(range(len(task.documents))):
            self._places[task.documents[place]].append(place)

    def find(self, doc_id: int, document: str) -> int | None:
        """The document's place: under its own number or, if the content differs there, anywhere; None if it is new."""
        place = self.at_its_number(doc_id, document)
        return self.elsewhere(document) if place is None else place

    def at_its_number(self, doc_id: int, document: str) -> int | None:
        """The place of the document with that number; None if its content differs."""
        place = self._numbered.get(doc_id)
        if place is None or place not in self._places.get(document, ()):
            return None
        self._places[document].remove(place)
        return place

    def elsewhere(self, document: str) -> int | None:
        """The place of any document with that content; None if there is none."""
        places = self._places.get(document)
        return places.pop() if places else None


def _same_documents(baseline: TaskRecord, candidate: TaskRecord) -> list[Pair]:
    known = BaselineDocuments(baseline)
    pairs, unmatched = [], []
    for after, (doc_id, document) in enumerate(zip(candidate.doc_ids, candidate.documents, strict=True)):
        before = known.at_its_number(doc_id, document)
        if before is None:
            unmatched.append((doc_id, document, after))
        else:
            pairs.append(Pair(doc_id, before, after))
    for doc_id, document, after in unmatched:
        if (before := known.elsewhere(document)) is not None:
            pairs.append(Pair(doc_id, before, after))
    return pairs


def _failed_documents(baseline: TaskRecord, candidate: TaskRecord, paired: Sequence[Pair]) -> Iterator[Pair]:
    """Pairs of failed documents. They have no hash, so they are paired by number, unless that document has a pair."""
    taken_before = {pair.before for pair in paired}
    taken_after = {pair.after for pair in paired}
    before = dict(zip(baseline.doc_ids, range(len(baseline.doc_ids)), strict=True))
    after = dict(zip(candidate.doc_ids, range(len(candidate.doc_ids)), strict=True))
    failed_before = set(baseline.failed)
    for doc_id in candidate.failed:
        if doc_id in before or doc_id in failed_before:
            place = before.get(doc_id)
            yield Pair(doc_id, None if place in taken_before else place, None)
    for doc_id in baseline.failed:
        if doc_id in after and after[doc_id] not in taken_after:
            yield Pair(doc_id, None, after[doc_id])
