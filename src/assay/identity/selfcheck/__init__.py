"""Does one server do what it says? Its own answers, cold and cached, alone and among others, against each other."""

from assay.identity.selfcheck.result import TITLES, Check, Finding, Outcome, SelfcheckReport
from assay.identity.selfcheck.run import SelfcheckOptions, selfcheck_async

__all__ = ["TITLES", "Check", "Finding", "Outcome", "SelfcheckOptions", "SelfcheckReport", "selfcheck_async"]
