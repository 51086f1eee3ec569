"""``assay helm run``: answer a HELM run's requests, and score them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from assay.cli.helm_options import allow_fewer_option, metric_options, output_options, unsafe_code_of
from assay.cli.sections import SHARED, SectionedCommand
from assay.cli.server_options import address_options, addresses, asked_as, concurrency_option, server_options

if TYPE_CHECKING:
    from assay.helm.running.answering import Answered, Source
    from assay.helm.running.runs import RunToAnswer
    from assay.helm.tokenization import TokenizerService

_LOCAL = "hf:"
_FAILURES_SHOWN = 5


_SECTIONS = {
    "Run": ("helm_python", "max_eval_instances", "num_train_trials", "plugins", "helm_name", "tokenizer", "max_length"),
    "Model in this process (hf:)": ("batch_size", "dtype", "device", "bos", "seed"),
    "Metrics": ("first_metric_only", "confirm_run_unsafe_code", "code_tests", "parallelism"),
    "Output": ("output_dir", "suite", "allow_fewer", "as_json"),
}


@click.command(
    cls=SectionedCommand,
    sections={"Server": SHARED["Server"], **_SECTIONS},
    short_help="Answer a run's requests with a server or a model in this process.",
)
@click.argument("what", metavar="ENTRY|RUN_DIR")
@click.option(
    "--model",
    required=True,
    help="Name under which a server serves the model, or a model to load.",
    metavar="NAME|hf:PATH",
)
@address_options
@click.option(
    "--completions/--chat", default=True, show_default=True, help="Which endpoint of the server gets the prompts."
)
@click.option(
    "--tokenizer",
    help="The model's tokenizer, for token counts and prompts that fit: hf:PATH, or MODULE:OBJECT.  [default: the "
    "hf: model's own]",
    metavar="hf:PATH|MODULE:OBJECT",
)
@click.option("--helm-name", help="What the model is called in HELM's files.", metavar="CREATOR/NAME")
@click.option(
    "--max-eval-instances", type=click.IntRange(min=1), help="With an ENTRY: how many instances.", metavar="N"
)
@click.option(
    "--num-train-trials",
    type=click.IntRange(min=1),
    help="With an ENTRY: how many trials, each with other examples in the prompts.",
    metavar="N",
)
@click.option("--plugin", "plugins", multiple=True, help="With an ENTRY: a module for HELM to load.", metavar="MODULE")
@click.option(
    "--helm-python",
    envvar="ASSAY_HELM_PYTHON",
    show_envvar=True,
    help="With an ENTRY: an interpreter that has crfm-helm.  [default: this one]",
    metavar="FILE",
)
@click.option("--max-length", type=click.IntRange(min=1), help="The model's context length in tokens.", metavar="N")
@click.option(
    "--batch-size", type=click.IntRange(min=1), default=8, show_default=True, help="Prompts at once.", metavar="N"
)
@click.option("--dtype", default="auto", show_default=True, help="Its precision.", metavar="TYPE")
@click.option("--device", help="Where it runs.  [default: a GPU if there is one]", metavar="NAME")
@click.option(
    "--bos/--no-bos",
    default=True,
    show_default=True,
    help="Let the tokenizer put its beginning-of-sequence token before prompts; FlexLLMGen does not.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is sampled.", metavar="N")
@concurrency_option
@server_options
@output_options
@allow_fewer_option
@metric_options
@click.option("--fresh", is_flag=True, help="Start anew instead of going on with an interrupted run.")
@click.option("--json", "as_json", is_flag=True, help="Print the statistics as JSON.")
def run(**options: Any) -> None:
    """Answer a HELM run's requests, compute its metrics and write its five files.

    A RUN_DIR is an earlier run's directory, whose requests are asked again as they are. An ENTRY is a description as
    helm-run takes it; the installed crfm-helm makes its requests. If the run is interrupted or requests fail, the same
    command goes on where it stopped.

    \b
    Example:
      assay helm run runs/v1/gsm:model=openai_gpt2 --base-url http://localhost:8000 --model my-model
    """
    from assay._util.interruption import interruptible
    from assay.cli.helm_output import print_stats, remark_evaluated, remark_lines
    from assay.cli.output import what_to_do
    from assay.errors import MissingDependencyError, NothingMeasuredError, SamplesFailedError, SpecificationError
    from assay.helm.evaluation import plan
    from assay.helm.run_directory import RunFiles, possible_metrics, write_run
    from assay.helm.running.answering import answered
    from assay.helm.running.preflight import check_outcome
    from assay.helm.selection import import_plugins
    from assay.reports.progress import show_progress

    output_dir: Path = options["output_dir"]
    journals = output_dir / "journal"
    with interruptible(journals):
        source = _source(options)
        run = _run(options, source)
        service = _tokenizer(options)
        folder = run.folder_in(output_dir / "runs" / options["suite"])
        unsafe_code = unsafe_code_of(options["confirm_run_unsafe_code"], options["code_tests"], folder, run.read_from)
        if importlib.util.find_spec("helm") is not None:  # else their metrics cannot be computed here anyway
            import_plugins(options["plugins"])
        possible = possible_metrics(run.run_spec, options["first_metric_only"])
        plans = plan(possible.metrics, run.state, service is not None, unsafe_code)
        remark_lines([*possible.only_helms, *possible.missing, *plans.left_out])
        if run.run_spec.annotators:
            remark_lines(["the run's annotators are HELM's own and do not run here; what rests on them is left out"])
        if not plans.metrics:
            raise NothingMeasuredError("no metric can be computed")
        if run.is_in(folder):
            raise SpecificationError(f"{folder} would be replaced, which is the run to be asked; name another --suite")
        check_outcome(
            run,
            plans.metrics,
            folder,
            service,
            gives_tokens=source.gives_tokens,
            allow_fewer=options["allow_fewer"],
        )
        with (
            show_progress() as progress,
            answered(run.run_spec, run.state, source, journals, progress, fresh=options["fresh"]) as done,
        ):
            evaluated = write_run(
                RunFiles(run.run_spec, run.scenario, done.state),
                plans.metrics,
                folder,
                service,
                options["parallelism"],
                unsafe_code=unsafe_code,
                allow_fewer=options["allow_fewer"],
            )
        remark_evaluated(evaluated)
        print_stats(evaluated.stats, options["as_json"], show_all=False)
        _remark_answered(done, folder, is_quiet=options["as_json"])
        sys.stdout.flush()
    done.finish()
    if done.failures:
        raise SamplesFailedError(
            f"{len(done.failures)} of {len(done.state.request_states)} requests have no answer ({done.causes}) and are "
            f"not scored; {what_to_do([failure.cause for failure in done.failures.values()])}"
        )
    evaluated.check_metrics()
    if evaluated.nothing_measured:
        raise NothingMeasuredError(evaluated.nothing_measured)
    if possible.missing:
        raise MissingDependencyError(
            f"all other statistics are written, but {'; '.join(possible.missing)}; once that is there, assay helm "
            f"evaluate {folder} computes them"
        )


def _source(options: dict[str, Any]) -> Source:
    from assay.errors import SpecificationError
    from assay.types import ModelSpec

    model = options["model"]
    if model.startswith(_LOCAL):
        if options["base_urls"] or options["base_urls_file"]:
            raise SpecificationError(f"{model} is loaded in this process: leave out --base-url, or name a served model")
        from assay.helm.engines.huggingface import HuggingFaceEngine
        from assay.helm.engines.local import LocalSource

        engine = HuggingFaceEngine(
            model.removeprefix(_LOCAL),
            batch_size=options["batch_size"],
            dtype=options["dtype"],
            device=options["device"],
            window=options["max_length"],
            begins=options["bos"],
            seed=options["seed"],
        )
        return LocalSource(engine)
    from assay.helm.running.server import ServerSource
    from assay.specification import validate_model

    base_url, *replicas = addresses(options)
    spec = ModelSpec(
        base_url=base_url,
        replicas=tuple(replicas),
        model=model,
        endpoint="completions" if options["completions"] else "chat",
        concurrency=options["concurrency"],
    )
    spec = asked_as(spec, options)
    validate_model(spec)
    if spec.stream:
        raise SpecificationError("HELM's runs need whole replies, with all completions and tokens: leave out --stream")
    return ServerSource(spec)


def _run(options: dict[str, Any], source: Source) -> RunToAnswer:
    from assay.errors import SpecificationError
    from assay.helm.running.entry import Entry, build_run
    from assay.helm.running.runs import helm_name, read_run

    model = options["model"].removeprefix(_LOCAL)
    path = Path(options["what"])
    if os.path.exists(path):  # Path.exists fails where the description is too long to be a file's name
        if options["max_eval_instances"] or options["num_train_trials"] or options["plugins"]:
            raise SpecificationError(f"{path} is a run directory: its requests are taken as they are")
        return read_run(path, helm_name(model, options["helm_name"]))
    tokenizer = options["tokenizer"] or (options["model"] if options["model"].startswith(_LOCAL) else None)
    entry = Entry(
        description=options["what"],
        model=helm_name(model, options["helm_name"]),
        is_named=options["helm_name"] is not None,
        tokenizer=tokenizer.removeprefix(_LOCAL) if tokenizer and tokenizer.startswith(_LOCAL) else None,
        window=source.window or options["max_length"],
        max_eval_instances=options["max_eval_instances"],
        num_train_trials=options["num_train_trials"],
        plugins=options["plugins"],
    )
    return build_run(entry, options["output_dir"], options["helm_python"])


def _tokenizer(options: dict[str, Any]) -> TokenizerService | None:
    from assay.helm.selection import load_tokenizer

    name = options["tokenizer"] or (options["model"] if options["model"].startswith(_LOCAL) else None)
    return None if name is None else load_tokenizer(name)


def _remark_answered(done: Answered, folder: Path, *, is_quiet: bool) -> None:
    from assay.cli.helm_output import remark_lines

    if done.num_cut:
        remark_lines(
            [f"{done.num_cut} prompts were longer than the model's window and were cut at their end, as HELM cuts them"]
        )
    if done.num_empty:
        remark_lines(
            [f"{done.num_empty} of {len(done.state.request_states)} answers are empty, and are scored as that"]
        )
    places = sorted(done.failures)[:_FAILURES_SHOWN]
    remark_lines([f"  request {place}: {done.failures[place].message}" for place in places])
    if not is_quiet:
        print(f"run  {folder}")
