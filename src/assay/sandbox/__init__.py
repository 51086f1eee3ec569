"""Runs untrusted Python programs, such as those that models write.

Other packages use ``pool.Sandbox``. It starts server processes (``server``), each of which forks a child for every
program; ``confinement`` confines the child. ``docs/code.md`` says what this protects against and what it does not. The
modules that run in the server import only the standard library.

It may import ``errors``, and nothing else of Assay.
"""
