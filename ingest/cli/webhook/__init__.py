"""`ingest webhook`: the sources of webhooks."""

COMMANDS = ("check",)


def webhook() -> None:
    """Check the sources of webhooks.

    Examples:
    `ingest webhook check` shows the sources that INGEST_WEBHOOKS names, or what is wrong with the file.

    How to receive webhooks: https://order-ingest.example/docs/how-to/webhooks.md
    """
