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

    With a sources file, the values of each source that differ from the defaults follow. `--json` prints all values.

    The exit code is 2 if a setting is invalid. Whether settings fit together, such as a credential and its kind, is found by
    `ingest doctor`, and by the commands that use them.

    Examples:
    `ingest config` lists every setting with its effective value. Passwords and tokens are masked.

    `ingest config --json` is for scripts.

    `INGEST_POSTGRES_DSN_FILE=/run/secrets/dsn ingest config` reads a setting from a file.

    Times are in seconds, sizes in bytes. All settings: https://order-ingest.example/docs/reference/settings.md
    """
    from ingest.cli.terminal.width import width_of
    from ingest.settings import PREFIX
    from ingest.settings.masked_values import effective, effective_source, set_by_source
    from ingest.settings.names import setting_name
    from ingest.settings.source_file import source_settings

    settings = start()
    values = effective(settings)
    sources = {name: each for name, each in source_settings(settings).items() if name}
    if as_json:
        if sources:
            values["sources"] = {name: _nested(effective_source(each)) for name, each in sources.items()}
        typer.echo(json.dumps(values, indent=2))
        return
    rows = {variable: (variable.removeprefix(PREFIX).lower(), value) for variable, value in values.items()}
    for name, each in sources.items():
        rows |= {setting_name(name, field): (field, value) for field, value in set_by_source(each)}
    for line in _lines(rows, width_of(sys.stdout)):
        typer.echo(line)


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a source in the tables of the sources file."""
    from ingest.settings.names import UPSTREAM, key_of

    tables: dict[str, Any] = {UPSTREAM: {}}
    for field, value in values.items():
        *above, key = key_of(field)
        (tables[UPSTREAM] if above else tables)[key] = value
    return tables


def _lines(values: dict[str, tuple[str, Any]], width: int) -> Iterator[str]:
    """A line for each setting. If that is too wide, its description is on lines below. Values are not wrapped.

    Args:
        values: the field and the value of each setting, by its name.
        width: of a line.
    """
    from ingest.settings import Settings

    about = {name: Settings.model_fields[field].description or "" for name, (field, _) in values.items()}
    shown = {name: "" if value is None else str(value) for name, (_, value) in values.items()}
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
