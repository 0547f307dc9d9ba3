"""`ingest mapping`: mappings, which turn documents of another shape into orders."""

COMMANDS = ("check",)


def mapping() -> None:
    """Check mappings, which turn documents of another shape into orders.

    Examples:
    `ingest mapping check --sample order.json` shows the row that the mapping makes of a document, or the error.

    The format of a mapping: https://order-ingest.example/docs/reference/mapping.md
    """
