"""Scores a predicted text against a gold text, with HELM's values."""
