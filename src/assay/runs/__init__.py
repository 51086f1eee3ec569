"""Finished runs as data, read from their files without a server.

Scores and hashes of a run: ``record`` holds them, ``files`` reads them, ``baseline`` writes them to a small file.
``pairing`` finds the same documents in two runs, and ``compare`` compares the runs. The whole run: ``samples`` joins
prompts, responses and scores, and ``sample_choice`` selects some of them. ``listing`` lists the runs in a folder.

The package may import ``results``, ``scoring``, ``journal`` and what stands below them.
"""
