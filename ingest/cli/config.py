"""`ingest config`: shows the effective settings."""

import json
from typing import Annotated

import typer

EPILOG = """
Examples:

`ingest config` lists every setting with its effective value; passwords and tokens are masked.

`ingest config --json` is the same for a script.

`INGEST_POSTGRES_DSN_FILE=/run/secrets/dsn ingest config` reads one of them from a file.
"""


def config(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the effective settings, secrets masked; fails like every other command if one is wrong."""
    from ingest.cli.common import start
    from ingest.settings import PREFIX, Settings, effective

    values = effective(start())
    if as_json:
        typer.echo(json.dumps(values, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("setting", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("what it does", style="dim")
    for name, value in values.items():
        field = Settings.model_fields[name.removeprefix(PREFIX).lower()]
        table.add_row(name, "" if value is None else str(value), field.description)
    Console(width=None if Console().is_terminal else 200).print(table, highlight=False)
