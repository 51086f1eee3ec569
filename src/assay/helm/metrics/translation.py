"""Corpus BLEU of translations, computed by sacrebleu (Post 2018, https://aclanthology.org/W18-6319)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from assay.errors import UnsupportedTaskError
from assay.helm.metrics.whole_run import WholeRunMetric, instance_label
from assay.helm.scoring.scorer import require_package
from assay.helm.stats import Moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.helm.adaptation import RequestState


class MachineTranslationMetric(WholeRunMetric):
    """BLEU of translations, with one completion and one reference for each text.

    Raises:
        MissingDependencyError: sacrebleu is not installed.
    """

    def __init__(self) -> None:
        require_package("sacrebleu", "MachineTranslationMetric")

    def digest(self, state: RequestState) -> tuple[str, str]:
        """A translation and its reference."""
        references, completions = state.instance.references, state.answer.completions
        if len(references) != 1 or len(completions) != 1:
            raise UnsupportedTaskError(
                f"machine translation: {instance_label(state.instance)} has {len(references)} references and "
                f"{len(completions)} completions, and one of each is expected"
            )
        return completions[0].text, references[0].output.text

    def summarize(self, digests: Sequence[object]) -> list[tuple[str, Moments]]:
        """BLEU of a context."""
        pairs = cast("Sequence[tuple[str, str]]", digests)
        from sacrebleu.metrics.bleu import BLEU

        score = BLEU().corpus_score([text for text, _ in pairs], [[reference for _, reference in pairs]]).score
        return [("bleu", Moments.of(float(score)))]
