"""lm-eval's own command line, read as a specification, so that CI jobs keep their command.

``parsing`` reads the arguments with lm-eval's own parser, ``options`` says what becomes of each option, ``translation``
makes a specification of them, ``assay_run`` the equivalent ``assay run``. It may import ``checks`` and what stands
below them.
"""
