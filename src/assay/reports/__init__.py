"""What people see of a run, a comparison or a gate: tables, progress, HTML, Markdown, JUnit.

Nothing is decided or computed here that is not about looks. It may import everything but ``cli``.
"""
