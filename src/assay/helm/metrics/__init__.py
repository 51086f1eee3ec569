"""Assay's implementations of HELM's metrics."""
