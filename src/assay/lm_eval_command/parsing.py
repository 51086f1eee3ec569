"""Arguments of ``lm_eval``, read by lm-eval's own parser: abbreviations, lists, JSON, YAML and defaults are its own."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn

from assay.errors import SpecificationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RUN = "run"
_ASSAY = "assay"
_INTERNAL = frozenset({"command", "func"})


@dataclass(frozen=True)
class OwnOptions:
    """Assay's own options, which may be mixed with lm-eval's."""

    min: tuple[str, ...] = ()
    max: tuple[str, ...] = ()
    range: tuple[str, ...] = ()
    stop_early: bool = False
    alpha: float | None = None
    data_dir: str | None = None
    fresh: bool = False
    retry_failed: bool = False
    probe: bool = True
    triage: bool = True
    report: bool = True


@dataclass(frozen=True)
class RunArguments:
    """One ``lm_eval run``."""

    config: Any
    """lm-eval's ``EvaluatorConfig``: arguments, YAML and defaults together."""
    given: dict[str, Any]
    """The values that are not lm-eval's defaults, by option."""
    own: OwnOptions


def parse(arguments: Sequence[str]) -> RunArguments | Callable[[], None]:
    """Read arguments as ``lm_eval`` does, the old form without ``run`` too.

    Returns:
        What is to be run; or, for ``ls``, ``validate`` and help, a function of lm-eval's that does it.

    Raises:
        SpecificationError: lm-eval refuses them, or a configuration file cannot be read.
    """
    parser = make_parser()
    commands = _commands(parser)
    arguments = list(arguments)
    if len(arguments) > 1 and arguments[0] not in commands:
        arguments.insert(0, RUN)
    elif arguments in ([], [RUN]):
        return (commands[RUN] if arguments else parser).print_help
    namespace = _parsed(parser, arguments)
    if namespace.command != RUN:
        return lambda: namespace.func(namespace)
    own = _take_own(namespace)
    config = _config(namespace)
    usual = type(config)()
    given = {
        field.name: value
        for field in fields(config)
        if (value := getattr(config, field.name)) != getattr(usual, field.name)
    }
    return RunArguments(config, given, own)


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    try:
        return parser.parse_args(arguments)
    except ValueError as error:  # broken JSON, for which lm-eval shows a traceback
        _refuse(str(error))


def make_parser() -> argparse.ArgumentParser:
    """lm-eval's parser, with Assay's options in a group of their own; errors are raised."""
    from lm_eval._cli.harness import HarnessCLI

    parser: argparse.ArgumentParser = HarnessCLI()._parser
    for each in (parser, *_commands(parser).values()):
        each.error = _refuse  # type: ignore[method-assign]
    _add_own(_commands(parser)[RUN])
    return parser


def run_options() -> dict[str, tuple[str, ...]]:
    """lm-eval's options of ``run``: the name of each value, and how the option is written."""
    from lm_eval._cli.harness import HarnessCLI

    actions = _commands(HarnessCLI()._parser)[RUN]._actions
    return {action.dest: tuple(action.option_strings) for action in actions if action.dest != "help"}


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(commands.choices)


def _refuse(message: str) -> NoReturn:
    raise SpecificationError(f"lm-eval would refuse this: {message}")


def _add_own(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(_ASSAY, "options that lm-eval does not have; see assay run --help")

    def add(name: str, text: str, **settings: Any) -> None:
        field = name.removeprefix("no-").replace("-", "_")
        group.add_argument(f"--{name}", dest=f"{_ASSAY}.{field}", help=text, **settings)

    repeated: dict[str, Any] = {"action": "append", "default": []}
    add("min", "demand on a score, which sets the exit code", metavar="[TASK:]KEY=VALUE", **repeated)
    add("max", "as --min, for metrics of which less is better", metavar="[TASK:]KEY=VALUE", **repeated)
    add("range", "least and greatest score of a document", metavar="[TASK:]KEY=LOW,HIGH", **repeated)
    add("stop-early", "ask only until every --min and --max is decided", action="store_true")
    add("alpha", "with --stop-early: chance of a wrong verdict each way", type=float, metavar="A")
    add("data-dir", "data sets on disk", metavar="DIR")
    add("fresh", "start a new run instead of resuming an interrupted one", action="store_true")
    add("retry-failed", "ask only what the last run has no answer to", action="store_true")
    add("no-probe", "do not probe the server first", action="store_false")
    add("no-triage", "do not explain low scores", action="store_false")
    add("no-report", "write no HTML report", action="store_false")


def _take_own(namespace: argparse.Namespace) -> OwnOptions:
    names = [field.name for field in fields(OwnOptions)]
    values: dict[str, Any] = {name: getattr(namespace, f"{_ASSAY}.{name}") for name in names}
    for name in names:
        delattr(namespace, f"{_ASSAY}.{name}")
    listed: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
    }
    return OwnOptions(**listed)


def _config(namespace: argparse.Namespace) -> Any:
    from lm_eval.config.evaluate_config import EvaluatorConfig

    try:
        with contextlib.redirect_stdout(sys.stderr):  # lm-eval prints the whole configuration if a file is in it
            return EvaluatorConfig.from_cli(namespace)
    except (ValueError, TypeError, OSError) as error:
        raise SpecificationError(f"lm-eval would refuse this: {' '.join(str(error).split())}") from None
