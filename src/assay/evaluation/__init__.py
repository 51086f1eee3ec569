"""A run, from its specification to its results.

``flow`` is the whole of it in one page. ``plan`` is what is known before the first request, ``state`` what changes
while answers come in (``totals``, ``endpoint_shares``, and ``snapshot`` for whoever watches), ``finish`` what is made
of it after the last.

It may import ``checks``, ``diagnosis``, ``engine`` and what stands below them.
"""

from assay.evaluation.finish import Evaluation
from assay.evaluation.flow import evaluate, evaluate_async

__all__ = ["Evaluation", "evaluate", "evaluate_async"]
