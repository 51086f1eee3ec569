"""Help in sections: nobody reads sixty options in one list."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from assay.cli.remarks import remark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SHARED = {
    "Server": ("base_urls", "base_urls_file", "model", "models", "completions", "api_key_env", "api_key_file"),
    "Tasks and prompts": (
        "limit",
        "samples",
        "num_fewshot",
        "repeats",
        "fewshot_as_multiturn",
        "gen_kwargs",
        "system_instruction",
        "max_gen_toks",
        "eos_string",
        "metadata",
        "predict_only",
        "include_path",
        "data_dir",
        "confirm_run_unsafe_code",
    ),
    "Prompts as token ids (with --completions)": (
        "tokenizer",
        "tokenizer_revision",
        "tokenized_requests",
        "apply_chat_template",
        "max_length",
        "add_bos_token",
        "custom_prefix_token_id",
    ),
    "Requests that fit the server": (
        "dialect",
        "header_texts",
        "dropped",
        "renamed",
        "extra_body_text",
        "reasoning",
        "think_end_token",
        "thinking_budget",
    ),
    "Verdict": ("explain", "minimums", "maximums", "ranges", "stop_early", "alpha", "beta", "size", "tolerate"),
    "Pace and patience": (
        "concurrency",
        "request_timeout",
        "max_attempts",
        "give_up_after",
        "requests_per_minute",
        "tokens_per_minute",
        "stream",
        "stall_timeout",
    ),
    "Resuming": ("fresh", "retry_failed"),
    "Output": (
        "output_dir",
        "as_json",
        "log_samples",
        "probe",
        "no_probe",
        "triage",
        "report",
        "junit",
        "markdown",
        "github",
        "bisect",
        "helm_dir",
    ),
    "Seeds": (
        "seeds",
        "random_seed",
        "numpy_seed",
        "torch_seed",
        "fewshot_seed",
        "request_seed",
        "distinct_repeat_seeds",
    ),
    "TLS": ("ca_file", "client_cert", "client_key", "insecure"),
}
"""Heading -> parameters in the order in which they are shown, for all commands."""


SPECIAL = frozenset(
    {
        "Prompts as token ids (with --completions)",
        "Requests that fit the server",
        "Pace and patience",
        "Resuming",
        "Seeds",
        "TLS",
    }
)
"""Sections that few people need: ``--help-all`` shows them."""
_FOR_SPECIAL_CASES = frozenset(name for heading in SPECIAL for name in SHARED[heading])
_SHOWS_ALL = "assay.help_all"


def _show_all(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[_SHOWS_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_all,
    help="Show all options: tokens, seeds, TLS, pace, odd servers.",
)
_GEN_KWARGS = "--gen-kwargs"
_SETTING = re.compile(r"[A-Za-z_][\w.]*=")


class SectionedCommand(click.Command):
    """A command whose ``--help`` shows its options in sections; options of no section get one of their own.

    Args:
        sections: the command's own, shown before the shared ones; an option that is in both is shown here only.
    """

    def __init__(self, *args: Any, sections: Mapping[str, Sequence[str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = dict(sections or {})
        taken = {name for names in own.values() for name in names}
        others = {heading: names for heading, names in SHARED.items() if heading not in own}
        shared = {heading: [name for name in names if name not in taken] for heading, names in others.items()}
        self._sections: dict[str, Sequence[str]] = {**own, **shared}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; settings that follow ``--gen-kwargs`` belong to it, as in lm-eval."""
        args = list(_with_option_repeated(args))
        self._remark_repetitions(ctx, args)
        return super().parse_args(ctx, args)

    def _remark_repetitions(self, ctx: click.Context, args: list[str]) -> None:
        """Remark on options that are given several times but hold one value: the last one counts."""
        with contextlib.suppress(click.UsageError):
            *_, order = self.make_parser(ctx).parse_args(list(args))
            for parameter, times in Counter(order).items():
                if (
                    isinstance(parameter, click.Option)
                    and not parameter.multiple
                    and not parameter.is_flag
                    and times > 1
                ):
                    remark(f"{parameter.opts[0]} is given {times} times; the last one counts")

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own and ``--help``; also ``--help-all`` if ``--help`` leaves sections out."""
        params = super().get_params(ctx)
        has_more = any(param.name in _FOR_SPECIAL_CASES for param in params)
        return [*params, _HELP_ALL] if has_more else params

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; those for special cases only if asked for."""
        options = {each.name: each for each in self.get_params(ctx) if isinstance(each, click.Option)}
        sectioned = {name for names in self._sections.values() for name in names}
        own = tuple(name for name in options if name not in sectioned)
        sections = {"Options": own, **self._sections} if len(own) > 1 else {**self._sections, "Help": own}
        shows_all = ctx.meta.get(_SHOWS_ALL, False)
        for heading, names in sections.items():
            if heading in SPECIAL and not shows_all:
                continue
            records = [record for name in names if name in options and (record := options[name].get_help_record(ctx))]
            if records:
                with formatter.section(heading):
                    formatter.write_dl([_on_or_off(*record) for record in records])


def _with_option_repeated(args: Sequence[str]) -> Iterator[str]:
    """``--gen-kwargs a=1 b=2`` as ``--gen-kwargs a=1 --gen-kwargs b=2``."""
    is_followed = takes_next = False
    for arg in args:
        if takes_next:
            is_followed, takes_next = True, False
        elif is_followed and _SETTING.match(arg):
            yield _GEN_KWARGS
        else:
            option, equals, _ = arg.partition("=")
            is_gen_kwargs = option.replace("_", "-") == _GEN_KWARGS
            takes_next, is_followed = is_gen_kwargs and not equals, is_gen_kwargs and bool(equals)
        yield arg


def _on_or_off(syntax: str, text: str) -> tuple[str, str]:
    """``--probe / --no-probe`` in short."""
    switch = re.fullmatch(r"--(\S+) / --no-\1", syntax)
    if switch is None:
        return syntax, text
    name = switch[1]
    words = text.replace(f"[default: {name}]", "[default: on]").replace(f"[default: no-{name}]", "[default: off]")
    return f"--[no-]{name}", words
