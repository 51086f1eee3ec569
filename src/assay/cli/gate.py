"""``assay gate``: servers against a policy, for continuous integration."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli import discard_stdout
from assay.cli.exit_codes import EXIT_CODES, code_for_git_bisect
from assay.cli.remarks import remark
from assay.cli.sections import SectionedCommand
from assay.cli.server_options import server_options, with_server_options
from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.gate.policy import Policy
    from assay.gate.run import GateReport


@click.command(
    cls=SectionedCommand,
    short_help="Judge servers by a policy: thresholds, baselines, early stopping.",
    epilog=EXIT_CODES,
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--explain", is_flag=True, help="Say what each check will be able to see; ask nothing.")
@click.option(
    "--base-url",
    "base_urls",
    multiple=True,
    help="Address instead of the policy's; several for one model, or @FILE with one a line, are replicas.",
    metavar="[NAME=]URL|@FILE",
)
@click.option(
    "--model", "models", multiple=True, help="Served model's name instead of the policy's.", metavar="[NAME=]MODEL"
)
@server_options
@click.option("--data-dir", help="Data sets on disk, in place of the policy's; else ASSAY_DATA_DIR.", metavar="DIR")
@click.option("--output-dir", help="Where results go instead of the policy's choice.", metavar="DIR")
@click.option("--no-probe", is_flag=True, help="Do not probe the servers first.")
@click.option("--fresh", is_flag=True, help="Start a new run instead of resuming an interrupted one.")
@click.option(
    "--retry-failed", is_flag=True, help="Ask only what the last runs of this have no answer to; never start another."
)
@click.option("--junit", type=click.Path(path_type=Path), help="Write JUnit XML.", metavar="FILE")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write one page of every model and check, and each run's report beside its results.",
    metavar="FILE",
)
@click.option("--markdown", type=click.Path(path_type=Path), help="Write a Markdown comment.", metavar="FILE")
@click.option(
    "--github/--no-github",
    default=None,
    help="Step summary and annotations (default: where GITHUB_ACTIONS is true).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--bisect",
    is_flag=True,
    help="Exit codes for git bisect run: 125 (skip) without a verdict, 128 (stop) where the gate itself is wrong.",
)
def gate(file: Path, **options: Any) -> int:
    """Judge servers by the policy in FILE, from as few questions as the evidence needs.

    Options for connections and requests hold for all servers, and override the policy.

    \b
    Example:
      assay gate gate.toml --junit gate.xml
    """
    return _for_bisect(lambda: _gate(file, options)) if options["bisect"] else _gate(file, options)


def _for_bisect(judge: Callable[[], int]) -> int:
    """The exit code that ``git bisect run`` takes for good, bad, untestable, or as a reason to stop."""
    try:
        code = judge()
    except AssayError as error:
        remark(f"assay: {error}")
        code = error.exit_code
    return code_for_git_bisect(code)


def _gate(file: Path, options: dict[str, Any]) -> int:
    import msgspec

    from assay.gate.policy import Overrides, load_policy

    chosen = {name: options[name] for name in Overrides.__struct_fields__}
    policy = load_policy(file, Overrides(**chosen))
    models = {name: with_server_options(model, options) for name, model in policy.models.items()}
    policy = msgspec.structs.replace(policy, models=models)
    if options["explain"]:
        return _explain(policy, as_json=options["as_json"])
    from assay.gate.run import run_gate
    from assay.reports.progress import show_progress

    for report_file in filter(None, (options["junit"], options["markdown"], options["html"])):
        _refuse_unwritable(report_file)
    report = run_gate(policy, show_progress(), name=str(file), on_result=functools.partial(_tell, options))
    return report.verdict.exit_code


def _tell(options: dict[str, Any], report: GateReport) -> None:
    """Print the verdict, then write the files; if one fails, the other is still done."""
    try:
        if options["as_json"]:
            from assay._util.json_text import json_line

            print(json_line(report), flush=True)
        else:
            from assay.cli.consoles import OutputConsole
            from assay.reports.gate import gate_text

            OutputConsole().print(gate_text(report), soft_wrap=True)
            sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()  # the exit code still tells the verdict
    finally:
        _write_reports(report, options)


def _explain(policy: Policy, *, as_json: bool) -> int:
    from assay.gate.explain import explain_gate

    outlooks = explain_gate(policy)
    if as_json:
        from assay._util.json_text import json_line

        print(json_line(outlooks))
        return 0
    from assay.cli.consoles import OutputConsole
    from assay.reports.outlook import outlook_text

    OutputConsole().print(outlook_text(outlooks))
    return 0


def _write_reports(report: GateReport, options: dict[str, Any]) -> None:
    from assay._util.storage import write_whole
    from assay.reports.github import is_github_actions

    with contextlib.ExitStack() as all_of_them:  # runs each, whatever another raises; the last one added comes first
        if is_github_actions(os.environ) if options["github"] is None else options["github"]:
            all_of_them.callback(_tell_github, report)
        if options["html"]:
            from assay.reports.gate_page import write_gate_page

            all_of_them.callback(write_gate_page, report, options["html"])
        if options["markdown"]:
            from assay.reports.gate import gate_markdown

            all_of_them.callback(write_whole, options["markdown"], gate_markdown(report).encode())
        if options["junit"]:
            from assay.reports.junit import junit_xml

            all_of_them.callback(write_whole, options["junit"], junit_xml(report))


def _tell_github(report: GateReport) -> None:
    from assay.reports import github

    github.write_step_summary(report, os.environ)
    remark(*github.annotation_lines(report))


def _refuse_unwritable(file: Path) -> None:
    """Make sure, before anything is asked, that a report can be written; its folder is made if there is none."""
    from assay._util.storage import write_error
    from assay.errors import OutputError

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(f"cannot write {file}", error) from error
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise OutputError(f"cannot write {file}: it is not writable")
