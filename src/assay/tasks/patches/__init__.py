"""Every place that reaches into the internals of lm-eval and the datasets library, and nothing else.

A new release of lm-eval can break these modules and only these. They may import what ``tasks`` may.

=================== ================================================================================================
module              what it patches
=================== ================================================================================================
datasets_library    ``datasets``: one description read once, the hub given three seconds
deferred_imports    large libraries that lm-eval imports at its start: imported at their first use
download            ``ConfigurableTask.download``: rows that are kept on the disk are taken from there
exact_match         ``exact_match_hf_evaluate``: the same values without building arrays
factory             ``TaskFactory``: errors for people, documents prepared once
fewshot             ``Task.sampler``: few-shot examples rendered once, or dropped
filters             ``Task._filters``: filters built once
hub_metrics         ``get_metric`` and the YAML loader: metrics served from ``hub_copies`` and ``squad_metric``
punctuation         a table of punctuation that lm-eval builds over and over
shared_settings     ``generation_kwargs``: shared instead of copied for every document
templates           ``apply_template``: compiled templates are kept
=================== ================================================================================================
"""
