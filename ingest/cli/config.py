"""`ingest config`: shows the effective settings."""

import json
import sys
import textwrap
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ingest.cli.invocation import start


def config(*, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the effective settings, with secrets masked.

    The exit code is 2 if a setting is invalid. Whether settings fit together, such as a credential and its kind, is found by
    `ingest doctor`, and by the commands that use them.

    Examples:
    `ingest config` lists every setting with its effective value. Passwords and tokens are masked.

    `ingest config --json` is for scripts.

    `INGEST_POSTGRES_DSN_FILE=/run/secrets/dsn ingest config` reads a setting from a file.

    Times are in seconds, sizes in bytes. All settings: https://order-ingest.example/docs/reference/settings.md
    """
    from ingest.cli.terminal.width import width_of
    from ingest.settings import effective

    values = effective(start())
    if as_json:
        typer.echo(json.dumps(values, indent=2))
        return
    for line in _lines(values, width_of(sys.stdout)):
        typer.echo(line)


def _lines(values: dict[str, Any], width: int) -> Iterator[str]:
    """A line for each setting. If that is too wide, its description is on lines below. Values are not wrapped."""
    from ingest.settings import PREFIX, Settings

    about = {name: Settings.model_fields[name.removeprefix(PREFIX).lower()].description or "" for name in values}
    shown = {name: "" if value is None else str(value) for name, value in values.items()}
    names, widest = max(map(len, values)) + 2, max(map(len, shown.values())) + 2
    if names + widest + max(map(len, about.values())) <= width:
        yield f"{'setting':<{names}}{'value':<{widest}}what it does"
        yield from (f"{name:<{names}}{shown[name]:<{widest}}{about[name]}" for name in values)
        return
    for name in values:
        yield f"{name:<{names}}{shown[name]}".rstrip()
        yield from textwrap.wrap(
            about[name], width, initial_indent="    ", subsequent_indent="    ", break_long_words=False
        )
