"""Models that answer a HELM run's requests in this process.

``protocol`` is what an engine offers, ``huggingface`` is one that runs transformers, ``local`` asks it and journals.
"""
