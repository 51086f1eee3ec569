"""Finds out what a server can do, by asking it."""

from assay.client.probe.probing import probe, probe_async
from assay.client.probe.report import TITLES, Capability, Observation, ProbeReport, Seen

__all__ = ["TITLES", "Capability", "Observation", "ProbeReport", "Seen", "probe", "probe_async"]
