"""What a server can do, seen and not guessed."""

from assay.models.probe.probing import probe
from assay.models.probe.report import TITLES, Capability, Finding, ProbeReport, Seen

__all__ = ["TITLES", "Capability", "Finding", "ProbeReport", "Seen", "probe"]
