"""The entry point of every command. Small, so that Ctrl-C ends it cleanly while Python still imports the rest."""

import os
import signal


def main() -> None:
    """Run the `ingest` command."""
    # Not in a background job of a shell, which must keep running.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, _stop)
    from ingest.cli import main as run  # noqa: PLC0415  the slow import that Ctrl-C may interrupt

    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _stop(*_: object) -> None:
    # Nothing has started yet. An exception during an import may be mistaken for another, or swallowed.
    os.write(2, b"stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
