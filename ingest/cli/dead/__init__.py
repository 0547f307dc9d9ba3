"""`ingest dead`: manages the dead letters."""

COMMANDS = ("list", "show", "replay", "drop", "export")


def dead() -> None:
    """Manage dead letters: list and show them, put them back into the queue, delete or export them.

    Examples:
    `ingest dead list --since 2h` lists the dead letters of the last two hours, newest first.

    `ingest dead show 536365` shows every detail of a dead letter. The ID is an order's or a dead letter's.

    `ingest dead replay --reason not_found --dry-run` shows what would go back into the queue. Without `--dry-run`,
    it goes back.

    `ingest dead drop --reason rejected --until 30d` deletes dead letters that are more than 30 days old.

    `ingest dead export --format csv --output dead.csv` writes all dead letters to a file.

    Run `ingest dead replay --help` for the help of a command.
    """
