"""Scores of one predicted text against one gold text, with the values that HELM gives."""
