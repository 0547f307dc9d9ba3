"""`ingest retries`: manages orders that wait for their next attempt."""

COMMANDS = ("list", "run-now", "dead-letter")


def retries() -> None:
    """Manage orders that wait for their next attempt: list them, run them now, or dead-letter them.

    Examples:
    `ingest retries list` lists the orders that wait for their next attempt, the soonest first, and why.

    `ingest retries run-now --reason timeout` makes their next attempt due now.

    `ingest retries dead-letter 536365` moves an order to the dead letters.

    Run `ingest retries run-now --help` for the help of a command.
    """
