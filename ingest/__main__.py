"""The entry point of every command. Small, so that Ctrl-C ends it cleanly while Python still imports the rest."""

import sys

from ingest.process.interrupt import ending_at_once


def main() -> None:
    """Run the `ingest` command."""
    with ending_at_once():
        # The slow imports that Ctrl-C may interrupt.
        if next((argument for argument in sys.argv[1:] if argument != "--debug"), None) == "worker":
            from ingest.worker_command import main as run  # noqa: PLC0415
        else:
            from ingest.cli import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
