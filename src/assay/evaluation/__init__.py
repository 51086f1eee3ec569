"""A run, from its specification to its results.

``flow`` shows the whole run on one page. ``plan`` holds what is known before the first request, ``state`` what changes
while answers arrive (``totals``, ``endpoint_shares``, and ``snapshot`` for progress displays). ``finish`` judges and
writes the results after the last answer.

It may import ``checks``, ``diagnosis``, ``scheduling`` and what stands below them.
"""

from assay.evaluation.finish import Evaluation
from assay.evaluation.flow import evaluate, evaluate_async

__all__ = ["Evaluation", "evaluate", "evaluate_async"]
