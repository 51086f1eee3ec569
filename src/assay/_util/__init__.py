"""Small helpers that know nothing of evaluation: paths, caches, JSON, safe text, signals, address lists.

A helper belongs here once two packages need it. It may import ``errors`` and libraries, and nothing else of Assay.
"""
