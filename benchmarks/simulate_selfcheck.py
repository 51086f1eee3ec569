"""How often ``assay selfcheck`` finds a fault in a sound server, and how often a planted one: whole self-checks.

``python -m benchmarks.simulate_selfcheck [--runs 100] [--alpha 0.4] [--fault NAME] [--noise 0.05]``

The server is the tests' small model. Its noise is of the size of bfloat16's: another batch, and decoding instead of
prefill, change each logit by a normal value of standard deviation 0.05, which makes 0.0018 nats a token. The stated
rate is set high, so that a few runs can show it to be exceeded.
"""

from __future__ import annotations

import argparse
from collections import Counter

from assay import ModelSpec
from assay.identity import Outcome, SelfcheckOptions, check_itself
from tests.servers.planted import FAULTS, NAME, PlantedServer, SmallModel


def main() -> None:
    """Run, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--alpha", type=float, default=0.4)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--fault", choices=FAULTS)
    options = parser.parse_args()
    with_fault, undecided = 0, 0
    named: Counter[str] = Counter()
    for seed in range(options.runs):
        with PlantedServer(SmallModel(options.fault, noise=options.noise)) as server:
            spec = ModelSpec(base_url=server.url, model=NAME)
            chosen = SelfcheckOptions(alpha=options.alpha, seed=seed, with_probe=False, levels=(1, 4, 16))
            report = check_itself(spec, chosen)
        with_fault += bool(report.faults)
        undecided += any(each.outcome is Outcome.INCONCLUSIVE for each in report.findings)
        named.update(f"{each.check}: {each.outcome}" for each in report.findings if each.outcome is not Outcome.OK)
    print(f"{with_fault} of {options.runs} with a fault at alpha {options.alpha:g}; {undecided} with a check undecided")
    for name, count in named.most_common():
        print(f"  {name} {count}")


if __name__ == "__main__":
    main()
