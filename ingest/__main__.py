"""Where every command begins. Small, so that Ctrl-C ends it quietly also while Python still imports the rest."""

import os
import signal


def main() -> None:
    """Run the `ingest` command."""
    # Not a shell's background job, which is to go on.
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_interruptible:
        signal.signal(signal.SIGINT, _stop)
    from ingest.cli import main as run  # noqa: PLC0415  the tenth of a second that this is about

    if is_interruptible:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _stop(*_: object) -> None:
    # Nothing has begun. An exception amid an import may be taken for another, or swallowed.
    os.write(2, b"stopped\n")
    os._exit(130)


if __name__ == "__main__":
    main()
