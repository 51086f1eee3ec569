"""Runs Python programs that nobody has looked at, such as those that models write.

``pool.Sandbox`` is what others use. It starts server processes (``server``), each of which forks a child for every
program; the child is shut in by ``confinement`` and ``system_calls``. What this keeps out and what it does not is told
in ``docs/code.md``. The modules that run in the server import nothing but the standard library.

It may import ``errors``, and nothing else of Assay.
"""
