"""What a server can do, seen and not guessed."""

from assay.models.probe.probing import probe
from assay.models.probe.report import TITLES, Capability, Observation, ProbeReport, Seen

__all__ = ["TITLES", "Capability", "Observation", "ProbeReport", "Seen", "probe"]
