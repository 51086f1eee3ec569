"""What each of several endpoints contributed to a run, for the results."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from assay.evaluation.totals import RunTotals
from assay.results.document import EndpointShare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.pool_member import Member
    from assay.client.preflight import Preflight
    from assay.types import Response


class EndpointShares:
    """Sums over responses by the endpoint that gave them."""

    def __init__(self) -> None:
        self._totals: defaultdict[str | None, RunTotals] = defaultdict(RunTotals)

    def add(self, responses: Sequence[Response]) -> None:
        """Count a sample's responses."""
        for response in responses:
            self._totals[response.endpoint].add([response])

    def summary(self, members: Sequence[Member], preflight: Preflight) -> tuple[EndpointShare, ...]:
        """One entry for each endpoint.

        Answers, failures, tokens and latencies are those of the whole run, also from before an interruption. Requests,
        faults and times set aside are those of this process. Endpoints that the run no longer has come last. Answers
        from a time when the run had a single endpoint have the address None.

        Args:
            members: the endpoints at the end of the run.
            preflight: what was found out about them before the run.
        """
        total = sum(totals.answers for totals in self._totals.values())
        known = {member.endpoint.address: member for member in members}
        others = [address for address in self._totals if address not in known]
        return tuple(self._entry(address, known.get(address or ""), total, preflight) for address in [*known, *others])

    def _entry(self, address: str | None, member: Member | None, total: int, preflight: Preflight) -> EndpointShare:
        sums = self._totals[address].summary(0.0)
        return EndpointShare(
            url=address,
            answers=sums.answers,
            share=sums.answers / total if total else None,
            failures=sums.failures,
            prompt_tokens=sums.prompt_tokens,
            completion_tokens=sums.completion_tokens,
            median_latency_seconds=sums.latency_seconds["p50"],
            requests=member.requests if member else 0,
            faults=dict(sorted(member.faults.items())) if member else {},
            times_set_aside=member.times_aside if member else 0,
            short_prompts=preflight.agreement.get(address or ""),
        )
