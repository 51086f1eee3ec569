"""Options for a model that answers in this process (``--model hf:PATH``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.types import ModelSpec

    Command = TypeVar("Command", bound=Callable[..., Any])

DTYPES = ("auto", "float32", "bfloat16", "float16")
_NAMES = ("dtype", "device", "batch_size", "attn", "revision", "trust_remote_code")


def _batch_size(_: click.Context, __: click.Parameter, value: str | None) -> int | str | None:
    if value is None or value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a whole number nor 'auto'") from None


_OPTIONS = (
    click.option("--dtype", type=click.Choice(DTYPES), help="With hf: precision of the weights.  [default: auto]"),
    click.option("--device", help="With hf: PyTorch's device.  [default: a GPU if there is one]", metavar="NAME"),
    click.option(
        "--batch-size",
        callback=_batch_size,
        help="With hf: requests in a batch; auto cuts them by their tokens.  [default: auto]",
        metavar="N|auto",
    ),
    click.option("--attn", help="With hf: transformers' attention, such as sdpa or eager.", metavar="NAME"),
    click.option("--revision", help="With hf: branch, tag or commit on the hub.", metavar="NAME"),
    click.option("--trust-remote-code", is_flag=True, help="With hf: run code that lies beside the model."),
)


def local_options(command: Command) -> Command:
    """Add the options for a model in this process."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def local_model(options: Mapping[str, Any]) -> ModelSpec | None:
    """The model in this process that the command's options name; None if they name a server's.

    Raises:
        UsageError: options of one kind of model are given with the other.
    """
    from assay.inprocess.preparing import LocalModel, is_local

    given = {name: value for name in _NAMES if (value := options.get(name)) is not None and value is not False}
    if not is_local(options["model"]):
        if given:
            raise click.UsageError(
                f"--{next(iter(given)).replace('_', '-')} is for models in this process: --model hf:PATH"
            )
        return None
    if options["base_urls"] or options["base_urls_file"]:
        raise click.UsageError(
            f"--base-url names a server, but {options['model']} answers in this process: leave it out"
        )
    return LocalModel(options["model"], **given)
