"""``assay init``: from a server to a policy and a CI file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.remarks import remark
from assay.cli.sections import SectionedCommand
from assay.cli.server_options import server_options, with_server_options

_FIRST_DOCUMENTS = 100
_INSTEAD = "move it, or name another (--policy, --ci none)"


@click.command(cls=SectionedCommand, short_help="Write a first policy and a CI file for a server.")
@click.option("--base-url", required=True, help="Server's address, with or without /v1.", metavar="URL")
@click.option(
    "--model", help="Name under which the server serves the model; default: the first that it lists.", metavar="NAME"
)
@click.option("--completions", is_flag=True, help="Ask /v1/completions with plain text instead of chat.")
@click.option(
    "--task", "tasks", multiple=True, help="Task to run; default: one that fits the server. Repeatable.", metavar="TASK"
)
@click.option(
    "--limit", type=float, default=_FIRST_DOCUMENTS, show_default=True, help="Documents of the first run.", metavar="N"
)
@click.option("--include-path", help="Folder with task YAML of your own; it may run code.", metavar="DIR")
@click.option("--data-dir", envvar="ASSAY_DATA_DIR", show_envvar=True, help="Data sets on disk.", metavar="DIR")
@click.option("--output-dir", default="results", show_default=True, help="Where the first run goes.", metavar="DIR")
@click.option("--policy", default="gate.toml", show_default=True, help="The policy to write.", metavar="FILE")
@click.option(
    "--ci",
    type=click.Choice(["github", "gitlab", "buildkite", "none"]),
    help="Which CI file to write.  [default: by the files here]",
)
@server_options
def init(**options: Any) -> int:
    """Run a task or two once, and write a policy that a healthy server will pass, and a file that runs it in CI.

    Nothing is overwritten.

    \b
    Example:
      assay init --base-url http://localhost:8000
    """
    from assay._util.storage import refuse_existing, write_new
    from assay.gate.ci_files import CI, PLACES, ci_file, system_of
    from assay.gate.first_policy import first_policy
    from assay.gate.policy_text import policy_text
    from assay.reports.progress import show_progress
    from assay.types import TaskOptions

    policy = Path(options["policy"])
    system = None if options["ci"] == "none" else CI(options["ci"]) if options["ci"] else system_of(Path())
    places = [policy] + ([] if system is None else [PLACES[system]])
    refuse_existing(places, instead=_INSTEAD)
    model = _model(options)
    task_options = TaskOptions(
        limit=options["limit"], include_path=options["include_path"], data_dir=options["data_dir"]
    )
    first = first_policy(model, task_options, options["tasks"], options["output_dir"], show_progress)
    texts = [policy_text(first.gate, options["base_url"])]
    texts += [] if system is None else [ci_file(system, str(policy))]
    write_new(dict(zip(places, texts, strict=True)), instead=_INSTEAD)
    for place in places:
        print(place)
    for demand in first.gate.demands:
        remark(f"{demand.task}: {demand.metric} must be at least {demand.min}; {demand.remark}")
    remark("Next:", f"  assay gate {policy} --explain", f"  assay gate {policy}")
    return 0


def _model(options: dict[str, Any]) -> Any:
    """The model that is named, or the first that the server lists."""
    from assay.client.probe import probe
    from assay.types import ModelSpec

    spec = ModelSpec(
        base_url=options["base_url"],
        model=options["model"] or "",
        endpoint="completions" if options["completions"] else "chat",
    )
    spec = with_server_options(spec, options)
    if spec.model:
        return spec
    import msgspec

    report = probe(spec, quick=True, seconds=10.0)
    return msgspec.structs.replace(spec, model=report.model or "")
