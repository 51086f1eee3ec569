"""``assay run``: evaluate a served model."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from assay._util.per_cent import share_hint
from assay.cli.lm_eval_options import RunCommand
from assay.cli.local_options import local_model, local_options
from assay.cli.remarks import remark
from assay.cli.server_options import address_options, addresses, concurrency_option, server_options, with_server_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from assay.types import Specification


class _Share(click.types.FloatParamType):
    """A number; a percentage is refused with the fraction to write instead."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and (instead := share_hint(value)):
            self.fail(f"{value!r} is no number: {instead}", param, ctx)
        return super().convert(value, param, ctx)


SHARE = _Share()


def _tasks(ctx: click.Context, __: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    given = (*ctx.params.get("named_tasks", ()), *value)
    names = tuple(name.strip() for argument in given for name in argument.split(",") if name.strip())
    if not names:
        raise click.BadParameter("name at least one task")
    return names


@click.command(cls=RunCommand, short_help="Evaluate a served model on one or more tasks.")
@click.argument("tasks", nargs=-1, callback=_tasks, metavar="TASK[,TASK…]")
@click.option("-t", "named_tasks", multiple=True, is_eager=True, help="A task, as in lm-eval.", metavar="TASK")
@address_options
@click.option(
    "--model",
    required=True,
    help="Name under which the server serves the model; hf:PATH loads one in this process.",
    metavar="NAME",
)
@local_options
@click.option("--completions", is_flag=True, help="Ask /v1/completions with plain text instead of chat.")
@click.option(
    "--tokenizer",
    help="The model's tokenizer: prompts go as token ids, as lm-eval sends them. DIR or NAME is Hugging Face's; "
    "'tiktoken:NAME' is OpenAI's; 'remote' asks the server.",
    metavar="DIR|NAME",
)
@click.option(
    "--tokenized-requests/--no-tokenized-requests",
    default=True,
    show_default=True,
    help="With --tokenizer: send token ids, or the text they stand for.",
)
@click.option("--limit", "-L", type=SHARE, help="Documents a task: a count, or a fraction below 1.", metavar="N")
@click.option(
    "--samples",
    "-E",
    help="Documents to ask, by task, in place of --limit; a file may hold it.",
    metavar="'{\"TASK\": [0,5,7]}'",
)
@click.option("--num-fewshot", type=int, help="Examples in each prompt instead of the task's own number.", metavar="K")
@click.option(
    "--repeats",
    type=int,
    help="Ask each document of a generative task so often; also reports avg@K, pass@k and maj@K.",
    metavar="K",
)
@click.option(
    "--gen-kwargs",
    multiple=True,
    help="Generation settings, e.g. temperature=0.6,max_gen_toks=4096. May be repeated.",
    metavar="KEY=VALUE,…",
)
@click.option(
    "--fewshot-as-multiturn/--no-fewshot-as-multiturn",
    default=True,
    show_default=True,
    help="In chat: examples are turns of their own, or join the question in one turn.",
)
@click.option(
    "--apply-chat-template",
    is_flag=True,
    help="With --completions: send conversations as the text that --tokenizer's chat template makes of them.",
)
@click.option("--system-instruction", help="System message before everything else.", metavar="TEXT")
@click.option(
    "--seed",
    "seeds",
    help="As in lm-eval: one seed for all random streams, or four: Python, NumPy, PyTorch, few-shot examples.",
    metavar="N[,N,N,N]",
)
@click.option("--random-seed", type=int, help="Seed of Python's random numbers (0).", metavar="N")
@click.option("--numpy-seed", type=int, help="Seed of NumPy's random numbers (1234).", metavar="N")
@click.option("--torch-seed", type=int, help="Seed of PyTorch's random numbers (1234).", metavar="N")
@click.option("--fewshot-seed", type=int, help="Seed of few-shot examples drawn at random (1234).", metavar="N")
@click.option(
    "--request-seed",
    type=int,
    default=1234,
    show_default=True,
    help="Sent as seed in every request.",
    metavar="N",
)
@click.option(
    "--distinct-repeat-seeds/--no-distinct-repeat-seeds",
    default=None,
    help="Send each repeat of a request with a seed of its own (on with --repeats); lm-eval sends one with all.",
)
@click.option(
    "--max-length",
    type=int,
    help="The model's context length in tokens, to which --tokenizer cuts prompts (2048 unless given, as in lm-eval).",
    metavar="N",
)
@click.option("--tokenizer-revision", help="Branch, tag or commit of a --tokenizer on the hub.", metavar="NAME")
@click.option("--add-bos-token", is_flag=True, help="With --tokenizer: let it add the special tokens that it adds.")
@click.option(
    "--custom-prefix-token-id",
    type=int,
    help="With --tokenizer: the token before a text without context.",
    metavar="ID",
)
@click.option(
    "--max-gen-toks",
    type=int,
    help="Tokens to generate at most, where neither the task nor --gen-kwargs say how many.  [default: 256]",
    metavar="N",
)
@click.option("--eos-string", help="A stop string that every request gets.", metavar="TEXT")
@concurrency_option
@server_options
@click.option(
    "--data-dir",
    envvar="ASSAY_DATA_DIR",
    show_envvar=True,
    help="Data sets on disk: DIR/<owner>/<name>, or a Hugging Face datasets cache.",
    metavar="DIR",
)
@click.option(
    "--metadata",
    multiple=True,
    help="For tasks that make their data themselves, as RULER: max_seq_lengths=[4096,8192]. May be repeated.",
    metavar="KEY=VALUE,…",
)
@click.option("--predict-only", is_flag=True, help="Keep the answers and score none; assay score scores them later.")
@click.option("--include-path", help="Folder with task YAML of your own; it may run code.", metavar="DIR")
@click.option(
    "--confirm-run-unsafe-code",
    is_flag=True,
    help="Allow tasks that run code which the model writes, in a sandbox.",
)
@click.option("--output-dir", default="results", show_default=True, help="Where results go.", metavar="DIR")
@click.option(
    "--log-samples/--no-log-samples",
    default=True,
    show_default=True,
    help="Write samples_*.jsonl, which baselines and comparisons need.",
)
@click.option(
    "--min",
    "minimums",
    multiple=True,
    help="Demand on a score, e.g. exact_match,strict-match=0.6; sets the exit code. May be repeated.",
    metavar="[TASK:]KEY=VALUE",
)
@click.option(
    "--max",
    "maximums",
    multiple=True,
    help="As --min, for metrics of which less is better.",
    metavar="[TASK:]KEY=VALUE",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    help="Least and greatest score of a document, where the metric of a --min or --max does not tell: f1,none=0,1.",
    metavar="[TASK:]KEY=LOW,HIGH",
)
@click.option("--stop-early", is_flag=True, help="Ask in random order, only until every --min and --max is decided.")
@click.option(
    "--alpha",
    type=SHARE,
    default=0.01,
    show_default=True,
    help="With --stop-early: chance of any wrong verdict each way, shared by all checks.",
    metavar="A",
)
@click.option(
    "--probe/--no-probe",
    default=True,
    show_default=True,
    help="Probe the server first (a dozen short requests, ten seconds at most); the results keep what it shows.",
)
@click.option("--fresh", is_flag=True, help="Start a new run instead of resuming an interrupted one.")
@click.option(
    "--retry-failed", is_flag=True, help="Ask only what the last run of this has no answer to; never start another."
)
@click.option(
    "--triage/--no-triage",
    default=True,
    show_default=True,
    help="Say why the scores are low, unless every check passes.",
)
@click.option("--report/--no-report", default=True, show_default=True, help="Write report_*.html beside the results.")
@click.option("--helm-dir", help="Write the run as HELM's run directories, too, under DIR/runs/assay/.", metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON instead of a table.")
def run(**options: Any) -> int:
    """Evaluate a served model on lm-eval tasks.

    Writes lm-eval's results_*.json and samples_*.jsonl, and report_*.html, under the output directory. If the run is
    interrupted, the same command goes on where it stopped.

    \b
    Example:
      assay run gsm8k_cot --base-url http://localhost:8000 --model my-model --min exact_match,strict-match=0.6
    """
    specification = specification_of(options)
    if options["helm_dir"] and not options["log_samples"]:
        raise click.UsageError("--helm-dir needs the samples files: leave out --no-log-samples")
    return run_and_present(
        specification,
        with_report=options["report"],
        as_json=options["as_json"],
        afterwards=_helm_writer(options["helm_dir"]),
    )


def run_and_present(
    specification: Specification,
    *,
    with_report: bool,
    as_json: bool = False,
    afterwards: Callable[[Path], None] = lambda _: None,
) -> int:
    """Do a run, and show it.

    Args:
        specification: the run.
        with_report: write its HTML report.
        as_json: show JSON in place of a table.
        afterwards: gets the results file, before anything is shown.

    Returns:
        The exit code.
    """
    from assay._util.interruption import interruptible
    from assay.cli.output import present, report_beside
    from assay.evaluation import evaluate
    from assay.evaluation.plan import run_folder
    from assay.reports.page_gathering import Gathering
    from assay.reports.progress import show_progress

    gathering = Gathering() if with_report else None
    reader = None if gathering is None else gathering.read
    with interruptible(run_folder(specification) / "journal"):
        with contextlib.redirect_stdout(sys.stderr):  # tasks print; standard output is for results
            evaluation = evaluate(specification, show_progress(), finish=False, sample_reader=reader)
        report = None if gathering is None else report_beside(evaluation.results_file, gathering)
        afterwards(evaluation.results_file)
        exit_code = present(evaluation, as_json=as_json, report=report)
    evaluation.finish()
    return exit_code


def _helm_writer(folder: str | None) -> Callable[[Path], None]:
    """Make the function that writes a run for HELM's tools; without a folder it does nothing.

    Raises:
        OutputError: it could not be written there.
    """
    if folder is None:
        return lambda _: None
    from pathlib import Path

    from assay.cli.output import write_helm_runs
    from assay.helm.lm_eval_runs import SUITE
    from assay.helm.options import suite_folder
    from assay.helm.run_directory import check_writable

    check_writable(suite_folder(Path(folder), SUITE))
    return lambda results_file: write_helm_runs(results_file, folder)


def specification_of(options: dict[str, Any]) -> Any:
    """The specification that the command's options describe."""
    from assay.checks.verdicts import parse_maximum, parse_minimum, parse_range, with_ranges
    from assay.types import EarlyStopping, ModelSpec, Specification

    fields = {name: options[name] for name in ModelSpec.__struct_fields__ if options.get(name) is not None}
    model = local_model(options)
    if model is not None:
        fields["model"] = model.model
        model = msgspec.structs.replace(model, seed=options["request_seed"], **fields)
    else:
        base_url, *replicas = addresses(options)
        model = ModelSpec(
            base_url=base_url,
            replicas=tuple(replicas),
            endpoint="completions" if options["completions"] else "chat",
            seed=options["request_seed"],
            **fields,
        )
    checks = [parse_minimum(text) for text in options["minimums"]]
    checks += [parse_maximum(text) for text in options["maximums"]]
    checks = with_ranges(checks, [parse_range(text) for text in options["ranges"]])
    return Specification(
        tasks=options["tasks"],
        model=with_server_options(model, options),
        options=_task_options(options),
        checks=tuple(checks),
        alpha=options["alpha"],
        early_stopping=EarlyStopping() if options["stop_early"] else None,
        output_dir=options["output_dir"],
        log_samples=options["log_samples"],
        fresh=options["fresh"],
        retry_failed=options["retry_failed"],
        probe=options["probe"],
        triage=options["triage"],
    )


def _task_options(options: dict[str, Any]) -> Any:
    from assay.tasks.seeds import parse_seeds
    from assay.tasks.selection import parse_samples
    from assay.types import TaskOptions

    given = {name: options[name] for name in TaskOptions.__struct_fields__ if options.get(name) is not None}
    given["gen_kwargs"] = _merged("--gen-kwargs", options["gen_kwargs"])
    given["metadata"] = _merged("--metadata", options["metadata"])
    if options["samples"] is not None:
        given["samples"] = parse_samples(options["samples"])
    seeds = {} if options["seeds"] is None else parse_seeds(options["seeds"])
    return TaskOptions(**{**seeds, **given})


def _merged(option: str, texts: Sequence[str]) -> dict[str, Any]:
    """The settings of all repetitions of an option; as in lm-eval, the last one of a name counts, with a remark."""
    from assay.tasks.gen_kwargs import parse_gen_kwargs

    settings: dict[str, Any] = {}
    for text in texts:
        for name, value in parse_gen_kwargs(text).items():
            if name in settings:
                remark(f"{option} has {name} twice; {value!r} counts")
            settings[name] = value
    return settings
