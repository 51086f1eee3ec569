"""The files of a run: lm-eval's results document with Assay's additions, and samples files.

Writing, checking and reading them belongs here; what a finished run means belongs in ``runs``. It may import
``scoring`` and what stands below it.
"""
