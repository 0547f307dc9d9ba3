"""`ingest webhook`: the sources of webhooks."""

from ingest.cli.terminal.documentation import DOCUMENTATION

COMMANDS = ("check",)

EPILOG = f"""
Examples:

`ingest webhook check` shows the sources that INGEST_WEBHOOKS names, or what is wrong with the file.

How to receive webhooks: {DOCUMENTATION}/how-to/webhooks.md
"""


def webhook() -> None:
    """Check the sources of webhooks."""
