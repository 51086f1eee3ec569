"""Assay beside the real lm-eval: the same tasks, the same server, compared field by field.

``make parity``, or ``python -m tests.parity --data-dir DIR``; what came out is in ``docs/parity.md``.
"""
