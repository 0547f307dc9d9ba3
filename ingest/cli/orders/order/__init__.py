"""`ingest order`: lists orders, shows where they are, has them fetched again, and erases them."""

COMMANDS = ("list", "show", "refetch", "erase")


def order() -> None:
    """Show where orders are, fetch them again, or erase them.

    Examples:
    `ingest order show 536365` shows whether an order is stored, queued, in flight, waiting for a retry, dead or erased.

    `ingest order list --stored-between 2h 1h` lists the orders that were stored in an hour.

    `ingest order refetch 536365` fetches an order again, and stores it whatever its version.

    `ingest order erase 536365` erases an order for good, after asking for confirmation.

    Run `ingest order show --help` for the help of a command.
    """
