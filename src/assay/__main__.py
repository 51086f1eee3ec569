"""The program ``assay``, and ``python -m assay``: a process that Ctrl-C ends from its first instruction to its last."""

import signal

_IS_OURS = signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""Not so in background jobs, for which shells ignore SIGINT."""
if _IS_OURS:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # in an import, KeyboardInterrupt would show a traceback


def main() -> None:
    """Run the command line."""
    from assay._util.interruption import Stop
    from assay.cli import end
    from assay.cli import main as command_line

    try:
        if not _IS_OURS:
            command_line()
        with Stop().handling(signal.SIGINT):  # and back to the default, which shows nothing while all is torn down
            command_line()
    except KeyboardInterrupt:
        end("interrupted", 130)
    finally:
        # Below ``python -m`` a process is killed in the end, whatever its exit code, if the last string that was
        # executed, a named tuple's for example, was left by KeyboardInterrupt.
        exec("")  # noqa: S102


if __name__ == "__main__":
    main()
