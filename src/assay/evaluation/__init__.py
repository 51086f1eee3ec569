"""A run, from its specification to its results.

``flow`` is the whole of it in one page. ``plan`` is what is known before the first request, ``work`` what fills up
while answers come in (``totals``, ``endpoint_shares``, and ``so_far`` for whoever watches), ``conclusion`` what is made
of it after the last.

It may import ``checks``, ``triage``, ``engine`` and what stands below them.
"""

from assay.evaluation.conclusion import Evaluation
from assay.evaluation.flow import evaluate, evaluate_async

__all__ = ["Evaluation", "evaluate", "evaluate_async"]
