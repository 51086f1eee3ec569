"""``assay gate import``: policies from the configurations of inference projects' CI."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("import", short_help="Write policies from inference projects' CI configurations.")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE…")
@click.option("--output-dir", default=".", show_default=True, help="Where policies go.", metavar="DIR")
@click.option("--base-url", help="The server's address, for the policy.", metavar="URL")
def gate_import(files: tuple[Path, ...], output_dir: str, base_url: str | None) -> None:
    """Write a policy for each configuration in FILE…, with a comment wherever the meaning changes.

    It reads vLLM's two formats (.buildkite/lm-eval-harness/configs and tests/evals/gsm8k/configs), the lm_eval part of
    its perf-eval workloads, and text files that list some of these. Nothing is overwritten.

    \b
    Example:
      assay gate import configs/*.yaml --base-url http://localhost:8000
      assay gate my-model.toml --explain
    """
    from assay._util.storage import write_new
    from assay.errors import UsageError
    from assay.gate.inference_configs import read_configs
    from assay.gate.policy_text import policy_text

    gates = [(gate, file) for file in files for gate in read_configs(file)]
    policies: dict[Path, str] = {}
    for gate, file in gates:
        policy = Path(output_dir) / f"{gate.name}.toml"
        if policy in policies:
            raise UsageError(f"{file} would be the second {policy}; import it by itself, with another --output-dir")
        policies[policy] = policy_text(gate, base_url)
    write_new(policies, instead="move it, or choose another --output-dir")
    for policy in policies:
        print(policy)
