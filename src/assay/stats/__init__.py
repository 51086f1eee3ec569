"""Statistics as pure functions of arrays: intervals, paired comparisons, tests that may stop at any time.

Nothing here knows what a language model is. Every formula names its source; ``docs/statistics.md`` explains them.

It may import ``errors``, and nothing else of Assay.
"""
