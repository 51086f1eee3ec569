"""``assay tasks``: what can be run."""

from __future__ import annotations

import click


@click.command(short_help="List the tasks, groups and tags there are.")
@click.argument("pattern", required=False, default="*")
@click.option("--include-path", help="Folder with task YAML of your own.", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tasks(pattern: str, include_path: str | None, as_json: bool) -> None:
    """List tasks, groups and tags whose names match PATTERN: * and ? as in a shell; a plain word matches anywhere."""
    import json

    from assay.tasks.index import list_tasks

    entries = list_tasks(pattern, include_path)
    if as_json:
        listed = [{"name": entry.name, "kind": entry.kind, "output_type": entry.output_type} for entry in entries]
        print(json.dumps(listed))
        return
    for entry in entries:
        print(f"{entry.kind:12} {entry.output_type or '':22} {entry.name}")
