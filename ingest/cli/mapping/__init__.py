"""`ingest mapping`: what makes orders of documents of other shapes."""

COMMANDS = ("check",)

EPILOG = """
Examples:

`ingest mapping check --sample order.json` shows the row that a document becomes, or what is wrong.

The format of a mapping: docs/reference/mapping.md.
"""


def mapping() -> None:
    """Check mappings, which make orders of documents of other shapes."""
