"""Models that answer a HELM run's requests in this process.

``protocol`` is the interface of an engine, ``huggingface`` is the engine that runs transformers, ``flexllmgen`` the one
that runs FlexLLMGen, ``batches`` is what these two share, and ``local`` gives an engine its requests and
journals the answers.
"""
