"""Finished runs as data, read from their files without a server.

A run as scores and hashes: ``record`` is what is kept of it, ``files`` reads it, ``baseline`` writes it small;
``pairing`` finds the same documents in two runs, ``compare`` puts the runs side by side. A run in full: ``samples``
joins prompts, responses and scores, ``sample_choice`` picks those that somebody wants to see, ``recorded_answers``
matches prompts that are written anew with the journal's answers.

It may import ``results``, ``scoring``, ``journal`` and what stands below them.
"""
