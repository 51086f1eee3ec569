"""Answers a HELM run's requests with a server or a model in this process."""
