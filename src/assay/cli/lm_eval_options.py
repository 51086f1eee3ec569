"""Options of ``lm_eval run`` that have another name here, or none: what to type instead (docs/run.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from assay.cli.sections import SectionedCommand
from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TASKS = "tasks are arguments: {command} gsm8k_cot,ifeval --base-url … --model …"
_ARGUMENTS = (
    "write --base-url URL --model NAME; for tokenizer=… --tokenizer, for num_concurrent=… --concurrency, for timeout=… "
    "--request-timeout, for max_retries=… --max-attempts"
)
_BATCHES = "leave it out: the server makes its batches, and --concurrency N says how many requests are outstanding"
_OUTPUT = "write --output-dir DIR"
_SAMPLES = "samples files are always written, unless --no-log-samples is given"
_CACHE = "leave it out: each run keeps its answers in a journal, and the same command goes on with them"

INSTEAD: Mapping[str, str] = {
    "--tasks": _TASKS,
    "--model_args": _ARGUMENTS,
    "-a": _ARGUMENTS,
    "-M": "write --model NAME, the name under which the server serves the model",
    "-b": _BATCHES,
    "--max_batch_size": _BATCHES,
    "--output_path": _OUTPUT,
    "-o": _OUTPUT,
    "-f": "write --num-fewshot K",
    "-s": _SAMPLES,
    "--use_cache": _CACHE,
    "-c": _CACHE,
    "--cache_requests": "leave it out: prepared data sets are always kept",
    "-x": "write --predict-only",
    "--write_out": "see prompts and answers afterwards with assay show RESULTS",
    "-w": "see prompts and answers afterwards with assay show RESULTS",
}
"""lm-eval's option, with its underscores -> what to do, as a clause."""


class RunCommand(SectionedCommand):
    """A command that runs tasks, for which people may type lm-eval's options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; for an option that only lm-eval has, say what to type instead."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            typed = f"--{name[2:].replace('-', '_')}" if name.startswith("--") else name
            if typed not in INSTEAD:
                raise
            if command := _whole_command(args):  # nothing follows it, so that it can be copied
                raise SpecificationError(f"{typed} is an option of lm-eval: {command}") from None
            advice = INSTEAD[typed].format(command=ctx.command_path)
            raise click.UsageError(f"{typed} is an option of lm-eval: {advice}", ctx) from None


def _whole_command(args: Sequence[str]) -> str | None:
    """What to type, where the arguments are a whole command line of lm-eval's; None where they are not."""
    from assay.errors import AssayError
    from assay.lm_eval_command.assay_run import assay_run
    from assay.lm_eval_command.parsing import RunArguments, parse
    from assay.lm_eval_command.translation import translate

    try:
        parsed = parse(["run", *args])
        if not isinstance(parsed, RunArguments):
            return None
        return f"assay lm-eval takes it as it is; or type: {assay_run(translate(parsed).specification)}"
    except AssayError:
        return None
