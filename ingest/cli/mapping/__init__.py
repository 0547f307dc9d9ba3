"""`ingest mapping`: mappings, which turn documents of another shape into orders."""

from ingest.cli.terminal.documentation import DOCUMENTATION

COMMANDS = ("check",)

EPILOG = f"""
Examples:

`ingest mapping check --sample order.json` shows the row that the mapping makes of a document, or the error.

The format of a mapping: {DOCUMENTATION}/reference/mapping.md
"""


def mapping() -> None:
    """Check mappings, which turn documents of another shape into orders."""
