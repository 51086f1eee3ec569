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
    from assay._util.storage import write_error
    from assay.errors import OutputError
    from assay.gate.inference_configs import read_configs
    from assay.gate.policy_text import policy_text

    gates = [gate for file in files for gate in read_configs(file)]
    written = {Path(output_dir) / f"{gate.name}.toml": policy_text(gate, base_url) for gate in gates}
    if there := next((path for path in written if path.exists()), None):
        raise OutputError(f"{there} is there already; move it, or choose another --output-dir")
    for path, text in written.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise write_error(f"cannot write {path}", error) from None
        print(path)
