"""HELM's metrics, computed here."""
