"""The real lm-eval, run as a child process with its output shown and its results read.

``process`` starts it, ``environment`` prepares what it inherits, ``shown_process`` shows what it prints. It may import
``results``, ``tasks`` and what stands below them.
"""
