"""`ingest source`: shows and checks the sources of the deployment."""

COMMANDS = ("list", "check")


def source() -> None:
    """Show and check the sources.

    A source is a shop, a marketplace or a carrier account.

    INGEST_SOURCES names the file that describes them. Without it, there is one source without a name.

    Examples:
    `ingest source list` shows the queue, the quota and the state of each source.

    `ingest source check shop-de --id 1001` fetches and maps an order of a source, and shows it.

    The sources file: https://order-ingest.example/docs/reference/sources.html
    """
