"""Models that answer in this process, without a server.

``engine`` is what a model must offer, ``huggingface`` offers it for transformers' causal models (``loading`` refuses
those that are none), ``answering`` takes a run's requests one by one, as the client of servers does, and gives them to
an engine in batches. ``preparing`` puts what is known of a loaded engine into the specification.

It may import ``tasks`` and what stands below them.
"""
