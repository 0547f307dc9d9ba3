"""`ingest dead`: the dead letters, for the people who see to them."""

COMMANDS = ("list", "show", "replay", "drop", "export")

EPILOG = """
Examples:

`ingest dead list --since 2h` shows what was buried in the last two hours, newest first.

`ingest dead show 536365` shows all there is to know about one, by its order's ID or its own.

`ingest dead replay --reason not_found --dry-run` says what would go back into the queue; without `--dry-run` it does.

`ingest dead drop --reason rejected --until 30d` deletes what was buried more than thirty days ago.

`ingest dead export --format csv --output dead.csv` writes all of them into a file.

Each command has more: `ingest dead replay --help`.
"""


def dead() -> None:
    """See what was buried and why; put it back into the queue, drop it, or export it."""
