"""``RankingMetric``: does the model, asked about each passage alone, rank those first that answer the query?

The measures are trec_eval's, through the package pytrec_eval.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

from assay.errors import MissingDependencyError, SpecificationError
from assay.helm.metrics.base import Evaluation, Metric, Setting
from assay.helm.metrics.table import Named, Perturbations, TrialTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.helm.adaptation import RequestState
    from assay.helm.groups import Group
    from assay.helm.stats import Stat

_METHOD = "ranking_binary"
_CUT_BY_HAND = "recip_rank"
"""trec_eval has no cut-off for this measure, so the ranking is cut here."""
_BINARY = (_CUT_BY_HAND, "recall", "success")
_TEXT_MEASURES = ("relstring", "runid")
"""Measures whose values are strings, which pytrec_eval cannot read."""
_NEVER_CUT = ("G", "Rndcg", "ndcg", "ndcg_rel")
"""Measures whose parameters are gains: with a cut-off, or a cut-off of 0, trec_eval ends the process."""
_MAX_INT32 = 2**31 - 1
"""Relevance and rank are C ints."""
_DISPLAY_NAMES = {"ndcg_cut": "NDCG", "recip_rank": "RR"}
_QUERY = "_"


class RankingMetric(Metric):
    """Measures of a ranking by yes-or-no judgements: first the passages with a yes, the most confident at the top.

    Args:
        method: Only ``ranking_binary``.
        measure_names: trec_eval's names, with or without a cut-off: ``ndcg_cut.10``.
        correct_output: The model's judgement of a passage that answers the query.
        wrong_output: The model's judgement of a passage that does not.
        rank: Compute every measure also for the passages up to this rank of the retrieval.
        multiple_relevance_values: Relevance has degrees; degree 1 does not count in binary measures.

    Raises:
        MissingDependencyError: pytrec_eval is not installed.
        SpecificationError: There is no such method or measure.
    """

    def __init__(
        self,
        method: str,
        measure_names: Sequence[str],
        correct_output: str,
        wrong_output: str,
        rank: int | None = None,
        multiple_relevance_values: bool = False,
    ) -> None:
        if method != _METHOD:
            raise SpecificationError(f"RankingMetric: the method {method!r} is not {_METHOD}")
        if rank is not None and rank < 0:
            raise SpecificationError(f"RankingMetric: the rank {rank} is negative")
        self.measures = [_Measure.parse(name) for name in measure_names]
        self.rank = rank
        self.multiple_relevance_values = multiple_relevance_values
        self._correct_output, self._wrong_output = _standard(correct_output), _standard(wrong_output)

    def begin(self, setting: Setting) -> Evaluation:
        """Start the evaluation of a run."""
        return _Evaluation(self, setting)

    def sort_key(self, state: RequestState) -> tuple[int, float]:
        """A passage's sort key: the model's judgement, then its log probability."""
        completions = state.answer.completions
        text, logprob = (completions[0].text, completions[0].logprob) if completions else ("missing", 0.0)
        judgement = _standard(text)
        if judgement == self._correct_output:
            return 2, logprob
        return int(judgement == self._wrong_output), -1 * logprob

    def measure(self, relevant: Mapping[str, int], ranked: Mapping[str, int], suffix: str = "") -> Named:
        """All measures of one ranking, in which greater values come first."""
        return [
            (f"{measure.display_name}{suffix}", measure.of(relevant, ranked, self.multiple_relevance_values))
            for measure in self.measures
        ]


class _Evaluation(Evaluation):
    def __init__(self, metric: RankingMetric, setting: Setting) -> None:
        super().__init__()
        self._metric = metric
        self._setting = setting
        self._table = TrialTable(perturbations=Perturbations.given(setting.has_perturbations))

    def add_group(self, group: Group) -> None:
        if not group.references:
            return
        passages = [
            _Passage.of(state) for state in sorted(group.references, key=self._metric.sort_key, reverse=True)
        ]  # the sort is stable, as HELM's
        relevant = {passage.key: passage.relevance for passage in passages if passage.relevance}
        if not relevant:  # HELM fails on it
            self.unscored.append(f"{group.label}: no passage is relevant")
            return
        ranked = {passage.key: len(passages) - place for place, passage in enumerate(passages)}
        statistics = self._metric.measure(relevant, ranked)
        if limit := self._metric.rank:
            retrieved = {
                passage.key: ranked[passage.key] for passage in passages if passage.rank and passage.rank <= limit
            }
            statistics += self._metric.measure(relevant, retrieved, f" (topk={limit})")
        statistics += [(f"ref{passage.number}_rank", place) for place, passage in enumerate(passages)]
        self._setting.emit(self._table.add_named(group.trial, group.instance, statistics))

    def finish(self) -> list[Stat]:
        return self._table.finish()


class _Passage(NamedTuple):
    number: int
    relevance: int | None
    rank: int | None
    """Its rank in the retrieval."""

    @classmethod
    def of(cls, state: RequestState) -> _Passage:
        """Read a reference's tags: ``relevance=2``, ``rank=7``."""
        number = state.reference_index or 0
        relevance = rank = None
        for tag in state.instance.references[number].tags:
            if "relevance" in tag:
                relevance = _number(tag)
            elif "rank" in tag:
                rank = _number(tag)
        return cls(number, relevance, rank)

    @property
    def key(self) -> str:
        return f"q{self.number}"


class _Measure(NamedTuple):
    name: str
    cut_off: int | None

    @classmethod
    def parse(cls, text: str) -> _Measure:
        name, dot, cut_off = text.partition(".")
        is_known = name in _package().supported_measures and name not in _TEXT_MEASURES
        is_cut = cut_off.isdecimal() and int(cut_off) > 0 and name not in _NEVER_CUT
        if not is_known or (dot and not is_cut):
            raise SpecificationError(f"RankingMetric: trec_eval has no measure {text!r}")
        return cls(name, int(cut_off) if dot else None)

    @property
    def display_name(self) -> str:
        name = _DISPLAY_NAMES.get(self.name, self.name.capitalize())
        return f"{name}@{self.cut_off}" if self.cut_off else name

    def of(self, relevant: Mapping[str, int], ranked: Mapping[str, int], has_degrees: bool) -> float:
        """The measure of one ranking; without a cut-off, the value at trec_eval's first default cut-off."""
        name = self.name if self.cut_off is None else f"{self.name}.{self.cut_off}"
        if self.name in _BINARY and has_degrees:
            relevant = {key: 0 if value == 1 else value for key, value in relevant.items()}
        if self.name == _CUT_BY_HAND and self.cut_off:
            name = self.name
            ranked = dict(sorted(ranked.items(), key=lambda item: item[1], reverse=True)[: self.cut_off])
        evaluator = _package().RelevanceEvaluator({_QUERY: dict(relevant)}, {name})
        return float(next(iter(evaluator.evaluate({_QUERY: dict(ranked)})[_QUERY].values())))


def _number(tag: str) -> int:
    _, _, value = tag.partition("=")
    try:
        number = int(value)
    except ValueError:
        raise SpecificationError(f"RankingMetric: the tag {tag!r} of a reference has no number") from None
    if abs(number) > _MAX_INT32:
        raise SpecificationError(f"RankingMetric: the number in the tag {tag!r} of a reference is too large")
    return number


def _standard(text: str) -> str:
    return text.strip().lower()


def _package() -> Any:
    try:
        return importlib.import_module("pytrec_eval")
    except ImportError:
        raise MissingDependencyError(
            "RankingMetric needs the package pytrec_eval: pip install 'assay[helm-ranking]'"
        ) from None
