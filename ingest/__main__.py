"""The entry point of every command. Small, so that Ctrl-C ends it cleanly while Python still imports the rest."""

import gc
import sys

from ingest.process.interrupt import ending_at_once

# New objects after which the garbage collector looks for cycles. Imported objects stay, and the objects of orders in flight end without it.
# To examine them each time takes 5 % of the CPU of an order at a fast API, and 10 % of the start-up.
_YOUNG_OBJECTS = 20_000


def main() -> None:
    """Run the `ingest` command."""
    gc.set_threshold(_YOUNG_OBJECTS)
    with ending_at_once():
        # The slow imports that Ctrl-C may interrupt.
        if next((argument for argument in sys.argv[1:] if argument != "--debug"), None) == "worker":
            from ingest.worker_command import main as run  # noqa: PLC0415
        else:
            from ingest.cli import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
