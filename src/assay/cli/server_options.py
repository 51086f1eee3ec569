"""Options for connections, retries and requests, shared by every command that asks servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from assay.types import TLS, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULTS = ModelSpec(base_url="", model="")

_CONNECTION = (
    click.option(
        "--api-key-env",
        help=f"Environment variable that holds the API key.  [default: {_DEFAULTS.api_key_env}]",
        metavar="NAME",
    ),
    click.option("--api-key-file", help="File that holds the API key, instead of the variable.", metavar="FILE"),
    click.option("--insecure", is_flag=True, help="Accept any certificate of the server."),
    click.option(
        "--ca-file", help="Trust the certificates in this file (PEM), instead of the system's.", metavar="FILE"
    ),
    click.option("--client-cert", help="Client certificate (PEM).", metavar="FILE"),
    click.option(
        "--header",
        "header_texts",
        multiple=True,
        help="A header for every request; NAME=$VARIABLE or NAME=@FILE keep it off the command line. Repeatable.",
        metavar="NAME=VALUE",
    ),
    click.option(
        "--think-end-token",
        help="Score only what follows this in an answer, as lm-eval's argument of that name.",
        metavar="TEXT",
    ),
    click.option(
        "--thinking-budget",
        type=int,
        help="Ask for at most so many tokens of reasoning (vLLM's thinking_token_budget).",
        metavar="N",
    ),
    click.option(
        "--reasoning",
        type=click.Choice(["keep", "strip"]),
        help="Strip: the same as --think-end-token '</think>'.  [default: keep]",
    ),
    click.option(
        "--dialect",
        type=click.Choice(["auto", "none", "openai", "azure", "mistral"]),
        help="How the provider's API differs: names of fields, and where the key goes.  [default: auto]",
    ),
    click.option(
        "--drop-field",
        "dropped",
        multiple=True,
        help="Leave a field out of every request, such as a seed that the server refuses. Repeatable.",
        metavar="NAME",
    ),
    click.option(
        "--rename-field",
        "renamed",
        multiple=True,
        help="Send a field by another name. Repeatable.",
        metavar="OLD=NEW",
    ),
    click.option(
        "--extra-body",
        "extra_body_text",
        help='Fields for every request: {"chat_template_kwargs": {"enable_thinking": false}}.',
        metavar="JSON",
    ),
    click.option("--client-key", help="Key of --client-cert, if it is in another file.", metavar="FILE"),
)
_ADDRESSES = (
    click.option(
        "--base-url",
        "base_urls",
        multiple=True,
        help="Server's address, with or without /v1. Repeated, or @FILE with one a line: replicas that share the work.",
        metavar="URL|@FILE",
    ),
    click.option("--base-urls-file", help="The same as --base-url @FILE.", metavar="FILE"),
)
_PATIENCE = (
    click.option(
        "--request-timeout",
        type=float,
        help=f"Seconds for one attempt.  [default: {_DEFAULTS.request_timeout:g}]",
        metavar="S",
    ),
    click.option("--stream", is_flag=True, help="Stream answers, and keep the times to first token."),
    click.option(
        "--stall-timeout",
        type=float,
        help="With --stream: seconds that an answer may pause once it has begun.  "
        f"[default: {_DEFAULTS.stall_timeout:g}]",
        metavar="S",
    ),
    click.option(
        "--max-attempts",
        type=int,
        help=f"Attempts at one request.  [default: {_DEFAULTS.max_attempts}]",
        metavar="N",
    ),
    click.option(
        "--requests-per-minute",
        type=float,
        help="Send no more requests in a minute, to all servers together.",
        metavar="N",
    ),
    click.option(
        "--tokens-per-minute",
        type=float,
        help="Use no more tokens of prompts and answers in a minute.",
        metavar="N",
    ),
    click.option(
        "--give-up-after",
        type=float,
        help="Seconds without any answer before the run stops, from the first failure after the last answer.  "
        f"[default: {_DEFAULTS.give_up_after:g}]",
        metavar="S",
    ),
)


def _concurrency(_: click.Context, __: click.Parameter, value: str) -> int | str:
    if value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is neither a whole number nor 'auto'") from None


concurrency_option = click.option(
    "--concurrency",
    default="auto",
    show_default=True,
    callback=_concurrency,
    help="Requests outstanding at once; auto finds out how many keep the server busy.",
    metavar="N|auto",
)

_FIELDS = (
    "dialect",
    "requests_per_minute",
    "tokens_per_minute",
    "think_end_token",
    "thinking_budget",
    "api_key_env",
    "api_key_file",
    "request_timeout",
    "stream",
    "stall_timeout",
    "max_attempts",
    "give_up_after",
)
"""Options that are fields of :class:`assay.types.ModelSpec` by the same name."""


def connection_options(command: Command) -> Command:
    """Add the options for reaching a server: key, certificates, headers, changes of bodies."""
    return _with(command, _CONNECTION)


def address_options(command: Command) -> Command:
    """Add the options for the servers' addresses."""
    return _with(command, _ADDRESSES)


def addresses(options: Mapping[str, Any]) -> tuple[str, ...]:
    """The base URLs that the command's options name, at least one.

    Raises:
        UsageError: there is none.
        SpecificationError: a file of them cannot be read.
    """
    from assay._util.address_list import read_addresses

    file = options["base_urls_file"]
    texts = [*options["base_urls"], *([f"@{file}"] if file else [])]
    if not texts:
        raise click.UsageError("Missing option '--base-url'.")
    return read_addresses(texts)


def server_options(command: Command) -> Command:
    """Add :func:`connection_options`, and those for time-outs, retries and rates."""
    return _with(command, (*_PATIENCE, *_CONNECTION))


def with_server_options(model: ModelSpec, options: Mapping[str, Any]) -> ModelSpec:
    """The model with the command's options for connections and requests.

    Args:
        model: its values hold where an option is not given.
        options: the command's, by name; all others are ignored.
    """
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    tls = msgspec.structs.replace(model.tls, **{name: given[name] for name in TLS.__struct_fields__ if name in given})
    fields = {name: given[name] for name in _FIELDS if name in given}
    return msgspec.structs.replace(model, tls=tls, **fields, **_request_fields(model, given))


def _request_fields(model: ModelSpec, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the options add to the model's own headers and changes of bodies."""
    from assay.client.request_shape import parse_extra_body, parse_rename
    from assay.client.thinking import USUAL_END
    from assay.client.user_headers import parse_header

    fields: dict[str, Any] = {}
    if given.get("reasoning") == "strip" and not given.get("think_end_token"):
        fields["think_end_token"] = USUAL_END
    if texts := given.get("header_texts"):
        fields["headers"] = {**model.headers, **dict(map(parse_header, texts))}
    if texts := given.get("renamed"):
        fields["rename_fields"] = {**model.rename_fields, **dict(map(parse_rename, texts))}
    if names := given.get("dropped"):
        fields["drop_fields"] = (*model.drop_fields, *names)
    if text := given.get("extra_body_text"):
        fields["extra_body"] = {**model.extra_body, **parse_extra_body(text)}
    return fields


def _with(command: Command, options: tuple[Callable[[Command], Command], ...]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
