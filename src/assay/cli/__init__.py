"""The command line: it parses arguments and prints results. A command's code is imported only when that command runs.

What a command does belongs in the library. It may import everything.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import io
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from assay._util.interruption import is_stopping
from assay._util.storage import is_storage_error, write_error
from assay._version import __version__
from assay.cli.exit_codes import EXIT_CODES
from assay.errors import AssayError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECTIONS = {
    "Evaluate": {
        "run": ("assay.cli.run", "run", "Evaluate a served model on one or more tasks."),
        "lm-eval": ("assay.cli.lm_eval", "lm_eval", "Run lm_eval's own command line, as it is."),
        "probe": ("assay.cli.probe", "probe", "See what a server can do, and how it behaves."),
        "tasks": ("assay.cli.tasks", "tasks", "List the tasks, groups and tags there are."),
    },
    "Judge": {
        "gate": ("assay.cli.gate", "gate", "Judge servers by a policy: thresholds, baselines, early stopping."),
        "calibrate": ("assay.cli.calibrate", "calibrate", "Run the same tasks several times: noise, and a margin."),
        "baseline": ("assay.cli.baseline", "baseline", "Keep a run as a small file to compare later runs with."),
        "init": ("assay.cli.init", "init", "Write a first policy and a CI file for a server."),
    },
    "Same model?": {
        "fingerprint": (
            "assay.cli.fingerprint",
            "fingerprint",
            "Tell from fifty one-token requests whether it is still the same model.",
        ),
        "watch": ("assay.cli.watch", "watch", "Visit a server from cron, and give alarm when it changes."),
        "diverge": ("assay.cli.diverge", "diverge", "Say where in an answer two servers part, and how far."),
        "selfcheck": ("assay.cli.selfcheck", "selfcheck", "Check one server against itself: cache, load, sampling, …"),
    },
    "Look": {
        "runs": ("assay.cli.runs", "runs", "List the runs of a folder, newest first."),
        "show": ("assay.cli.show", "show", "Look at a run's samples: prompts, answers, scores."),
        "compare": ("assay.cli.compare", "compare", "Compare runs, document by document."),
        "report": ("assay.cli.report", "report", "Show a finished run as one HTML file, with every sample."),
        "triage": ("assay.cli.triage", "triage", "Say why a run scored low: the model, or the harness?"),
        "score": ("assay.cli.score", "score", "Score a run's answers again, without a server, and say what differs."),
    },
    "HELM": {
        "helm": ("assay.cli.helm", "helm", "Answer HELM's runs and compute its metrics, without HELM."),
    },
    "Housekeeping": {
        "journal": ("assay.cli.journal", "journal", "Look into the record of a run: show, check, export."),
        "clean": ("assay.cli.runs", "clean", "Remove journals of finished runs."),
        "demo": ("assay.cli.demo", "demo", "See it work: a small real model, served and evaluated on this machine."),
    },
}
"""Heading -> name -> module, function, one line of help."""
_COMMANDS = {name: entry for section in _SECTIONS.values() for name, entry in section.items()}
_COMPLETION = "_ASSAY_COMPLETE"
"""Environment variable by which a shell asks for completions; see click's documentation."""
_LONGEST_MESSAGE = 4000
_GOES_ON = "the same command"
"""What errors say to run where answers are kept."""
_NOT_AS_ASKED = (2, 70)
"""Exit codes of errors before anything is judged."""


class _LazyGroup(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, function, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), function)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for heading, commands in _SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, summary) for name, (_, _, summary) in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"there is no command '{args[0]}'{_near(args[0])}")
        if args[:2] == ["gate", "import"]:
            from assay.cli.gate_import import gate_import

            return "gate import", gate_import, args[2:]
        return super().resolve_command(ctx, args)


@click.group(
    cls=_LazyGroup,
    epilog=EXIT_CODES,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "token_normalize_func": lambda name: name.replace("_", "-"),  # lm-eval's spelling is understood too
    },
)
@click.version_option(__version__, "-V", "--version", prog_name="assay")
def cli() -> None:
    """Tell whether a served language model still answers as it should, how sure that is, and if not, why."""


def _replace_closed_streams() -> None:
    """Open /dev/null in place of standard streams that the caller has closed (``>&-``).

    Else the next file that is opened, say a journal, would get a closed stream's number, and with it what libraries and
    child processes print.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number)
            if nothing != number:
                os.close(nothing)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as all streams are


def _escape_what_cannot_be_shown() -> None:
    """Escape characters that the terminal's encoding lacks, and lone surrogates, which every encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _collect_garbage_rarely() -> None:
    """Collect garbage rarely, and not at the end: that saves half a second.

    Imports make hundreds of thousands of objects, which live as long as the process. Only for a process of the
    command's own.
    """
    gc.set_threshold(50_000, 20, 20)
    atexit.register(gc.freeze)


def _avoid_unused_threads() -> None:
    """Keep NumPy's linear algebra, which nothing here calls, from starting threads that spin before they sleep."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _silence_lm_eval() -> None:
    """Show warnings of all libraries but lm-eval.

    Some tasks' Python, and ROUGE's, configure logging; from then on lm-eval's messages to authors of tasks would be
    shown, too.
    """
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(lambda record: record.name.partition(".")[0] not in ("lm_eval", "lm-eval"))
    logging.getLogger().addHandler(handler)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every deliberate error becomes one line on stderr and its exit code."""
    if arguments is None:
        _replace_closed_streams()
        _escape_what_cannot_be_shown()
        _collect_garbage_rarely()
        _avoid_unused_threads()
        _silence_lm_eval()
    _complete_for_shell()
    try:
        # Not cli.main(), which makes a broken pipe exit code 1: that says that a check is not met.
        with cli.make_context("assay", list(sys.argv[1:] if arguments is None else arguments)) as context:
            result: Any = cli.invoke(context)
    except click.exceptions.Exit as asked:
        sys.exit(asked.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        with contextlib.suppress(BrokenPipeError):
            print(error.format_message(), flush=True)
        sys.exit(0)
    except (click.exceptions.Abort, KeyboardInterrupt):
        end("interrupted", 130)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "assay"
        end(f"{error.format_message()} (see '{command} --help')", error.exit_code)
    except click.ClickException as error:
        end(error.format_message(), error.exit_code)
    except AssayError as error:
        end(_unless_fresh(str(error), sys.argv[1:] if arguments is None else arguments), error.exit_code)
    except BrokenPipeError:
        discard_stdout()
        sys.exit(141)
    except Exception as error:
        if isinstance(error, OSError):
            _end_on_system_error(error)
        place = _keep_traceback()
        end(f"internal error, please report it: {type(error).__name__}: {error}; traceback in {place}", 70)
    else:
        _leave(result if isinstance(result, int) else 0, is_own_process=arguments is None)


def _unless_fresh(message: str, arguments: Sequence[str]) -> str:
    """The message, with a correction where the same command would start a new run."""
    return f"{message} (without --fresh)" if "--fresh" in arguments and _GOES_ON in message else message


def _complete_for_shell() -> None:
    """Answer a shell that asks for completions, and end."""
    if _COMPLETION in os.environ:
        cli.main(prog_name="assay")


def _leave(exit_code: int, *, is_own_process: bool) -> None:
    """End when all is done; signals no longer change the exit code."""
    if is_own_process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    sys.exit(exit_code)


def discard_stdout() -> None:
    """Discard what is still to be written: nobody reads standard output any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _end_on_system_error(error: OSError) -> None:
    if error.errno == errno.ENAMETOOLONG:
        end(f"no file can have so long a name: {error.filename}", 2)
    if is_storage_error(error):
        if error.filename is None:
            discard_stdout()
            end(f"cannot write to standard output: {error.strerror}", StorageError.exit_code)
        failed = write_error(f"cannot use {error.filename}", error)
        end(str(failed), failed.exit_code)


def end(message: str, exit_code: int) -> None:
    """End the process with one line on stderr."""
    from assay._util.text import printable

    if exit_code in _NOT_AS_ASKED and is_stopping():
        message, exit_code = "interrupted", 130  # the interruption has made an import fail

    with contextlib.suppress(OSError, ValueError):  # there may be no stderr any more
        print(f"assay: {printable(' '.join(message.split()), _LONGEST_MESSAGE)}", file=sys.stderr)
    sys.exit(exit_code)


def _keep_traceback() -> str:
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="assay-traceback-", suffix=".txt", delete=False) as file:
            file.write(traceback.format_exc())
    except OSError as error:
        return f"no file ({error.strerror})"
    return file.name


def _near(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, _COMMANDS, n=1)
    return f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(_COMMANDS)}"
