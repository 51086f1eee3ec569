"""FlexLLMGen's own engine: OPT models with weights, cache and activations offloaded to memory and disk.

It may import ``errors`` and ``types``.
"""
