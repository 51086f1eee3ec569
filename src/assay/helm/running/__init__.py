"""Answering a HELM run's requests: by a server, or by a model in this process."""
