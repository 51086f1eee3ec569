"""``assay helm run``: answer a HELM run's requests, and score them."""

from __future__ import annotations

import functools
import sys
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from assay.cli.helm_options import allow_fewer_option, metric_options, metric_options_of, output_options
from assay.cli.local_options import DTYPES
from assay.cli.sections import SHARED, SectionedCommand
from assay.cli.server_options import address_options, addresses, concurrency_option, server_options, with_server_options

if TYPE_CHECKING:
    from assay.helm.options import EntryOptions, FlexLLMGenModel, LocalModel
    from assay.helm.running.run import AnsweredRun
    from assay.types import ModelSpec

_FAILURES_SHOWN = 5
_ONLY_HF = ("batch_size", "dtype", "device", "bos", "max_length")


_SECTIONS = {
    "Run": ("helm_python", "max_eval_instances", "num_train_trials", "plugins", "helm_name", "tokenizer", "max_length"),
    "Model in this process (hf:)": ("batch_size", "dtype", "device", "bos", "seed"),
    "Model in this process (flexllmgen:)": ("engine_options",),
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
    metavar="NAME|hf:PATH|flexllmgen:PATH",
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
@click.option("--dtype", type=click.Choice(DTYPES), default="auto", show_default=True, help="Its precision.")
@click.option("--device", help="Where it runs.  [default: a GPU if there is one]", metavar="NAME")
@click.option(
    "--bos/--no-bos",
    default=True,
    show_default=True,
    help="Let the tokenizer put its beginning-of-sequence token before prompts; FlexLLMGen does not.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is sampled.", metavar="N")
@click.option(
    "--engine-option",
    "engine_options",
    multiple=True,
    help="One of FlexLLMGen's options by its own name, such as percent='0 100 0 100 0 100'; as often as needed.",
    metavar="NAME=VALUE",
)
@concurrency_option
@server_options
@output_options
@allow_fewer_option
@metric_options
@click.option("--fresh", is_flag=True, help="Start a new run instead of resuming an interrupted one.")
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
    from assay.helm.running.run import run as answer
    from assay.reports.progress import show_progress

    outcome = answer(
        options["what"],
        _model(options),
        metric_options_of(options),
        entry=_entry_options(options),
        helm_name=options["helm_name"],
        output_dir=options["output_dir"],
        suite=options["suite"],
        fresh=options["fresh"],
        progress=show_progress(),
        on_result=functools.partial(_tell, as_json=options["as_json"]),
    )
    outcome.raise_if_incomplete()


def _tell(outcome: AnsweredRun, *, as_json: bool) -> None:
    from assay.cli.helm_output import print_stats, remark_evaluated, remark_lines

    remark_evaluated(outcome.evaluated)
    print_stats(outcome.stats, as_json, show_all=False)
    if cut := outcome.num_truncated:
        remark_lines([f"{cut} prompts were longer than the model's window and are cut at their end, as HELM cuts them"])
    if empty := outcome.num_empty:
        remark_lines([f"{empty} of {outcome.num_requests} answers are empty, and are scored as that"])
    places = sorted(outcome.failures)[:_FAILURES_SHOWN]
    remark_lines([f"  request {place}: {outcome.failures[place].message}" for place in places])
    if not as_json:
        print(f"run  {outcome.folder}")
    sys.stdout.flush()


def _model(options: dict[str, Any]) -> ModelSpec | LocalModel | FlexLLMGenModel:
    from assay.errors import SpecificationError
    from assay.helm.options import FLEXLLMGEN_PREFIX, LocalModel
    from assay.types import LOCAL_PREFIX, ModelSpec

    model = options["model"]
    if model.startswith((LOCAL_PREFIX, FLEXLLMGEN_PREFIX)) and (options["base_urls"] or options["base_urls_file"]):
        raise SpecificationError(f"{model} is loaded in this process: leave out --base-url, or name a served model")
    if model.startswith(FLEXLLMGEN_PREFIX):
        return _flexllmgen_model(model.removeprefix(FLEXLLMGEN_PREFIX), options)
    if options["engine_options"]:
        raise SpecificationError("--engine-option is for FlexLLMGen: --model flexllmgen:PATH")
    if model.startswith(LOCAL_PREFIX):
        given = {field.name: options[field.name] for field in fields(LocalModel) if field.name in options}
        return LocalModel(path=model.removeprefix(LOCAL_PREFIX), **given)
    base_url, *replicas = addresses(options)
    spec = ModelSpec(
        base_url=base_url,
        replicas=tuple(replicas),
        model=model,
        endpoint="completions" if options["completions"] else "chat",
        concurrency=options["concurrency"],
        max_length=options["max_length"],
    )
    return with_server_options(spec, options)


def _flexllmgen_model(path: str, options: dict[str, Any]) -> FlexLLMGenModel:
    from assay.errors import SpecificationError
    from assay.helm.options import FlexLLMGenModel

    context = click.get_current_context()
    for name in _ONLY_HF:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = next(option for option in context.command.params if option.name == name).opts[0]
            raise SpecificationError(f"{flag} is not for FlexLLMGen, whose own options are given with --engine-option")
    given = {}
    for text in options["engine_options"]:
        name, equals, value = text.partition("=")
        if not equals or name in given:
            what = "is given twice" if equals else "is not NAME=VALUE"
            raise SpecificationError(f"--engine-option {text!r} {what}")
        given[name] = value
    return FlexLLMGenModel(path=path, options=given, seed=options["seed"])


def _entry_options(options: dict[str, Any]) -> EntryOptions:
    from assay.helm.options import EntryOptions

    return EntryOptions(**{field.name: options[field.name] for field in fields(EntryOptions)})
