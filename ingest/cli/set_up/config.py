"""`ingest config`: shows the effective settings."""

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import say, start

if TYPE_CHECKING:
    from ingest.settings.origins import ListedSetting


def config(
    *,
    show_all: Annotated[bool, typer.Option("--all", help="Show all settings, with their descriptions.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all values as JSON.")] = False,
) -> None:
    """Show the settings that differ from the defaults.

    It shows the effective values, with secrets masked, and where each comes from: the environment, `.env`, a file that either
    names, the sources file, or the kind of a source.

    The exit code is 2 if a setting is invalid. Whether settings fit together, such as a credential and its kind, is found by
    `ingest doctor`, and by the commands that use them.

    Examples:
    `ingest config` shows the settings that differ from the defaults.

    `ingest config --all` also shows the defaults, and describes each setting.

    `ingest config --json | jq .INGEST_PROCESSES` prints a value, even if it is the default.

    `INGEST_POSTGRES_DSN_FILE=/run/secrets/dsn ingest config` reads a setting from a file.

    Durations are shown as they were written, and in seconds with --json. Through a pipe, tabs separate the columns.

    All settings: https://order-ingest.example/docs/reference/settings.html
    """
    from ingest.cli.terminal.width import width_of
    from ingest.settings.masked_values import effective, effective_source
    from ingest.settings.origins import listed_settings
    from ingest.settings.source_file import source_settings

    settings = start()
    if as_json:
        values = effective(settings)
        sources = {name: each for name, each in source_settings(settings).items() if name}
        if sources:
            values["sources"] = {name: _nested(effective_source(each)) for name, each in sources.items()}
        typer.echo(json.dumps(values, indent=2))
        return
    shown = [each for each in listed_settings(settings) if show_all or each.is_changed]
    for line in lines_of(shown, width_of(sys.stdout), with_about=show_all):
        typer.echo(line)
    if not shown:
        say("no setting differs from its default: `ingest config --all` shows all of them")


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a source in the tables of the sources file."""
    from ingest.settings.names import UPSTREAM, key_of

    tables: dict[str, Any] = {UPSTREAM: {}}
    for field, value in values.items():
        *above, key = key_of(field)
        (tables[UPSTREAM] if above else tables)[key] = value
    return tables


def lines_of(settings: "Sequence[ListedSetting]", width: int, *, with_about: bool) -> Iterator[str]:
    """A line for each setting. If that is too wide, its origin and its description are on lines below. Values are not wrapped.

    In a pipe or a file, tabs separate the columns.
    """
    from ingest.cli.terminal.width import UNBOUNDED, aligned
    from ingest.settings.origins import DEFAULT

    if not settings:
        return
    header = ("setting", "value", "from", *(("what it does",) if with_about else ()))
    rows = [
        (each.name, "" if each.value is None else str(each.value), each.origin, *((each.about,) if with_about else ()))
        for each in settings
    ]
    if width == UNBOUNDED:
        yield from map("\t".join, (header, *rows))
        return
    table = aligned([header, *rows], "  ")
    if max(map(len, table)) <= width:
        yield from table
        return
    names = max(len(each.name) for each in settings)
    for name, value, origin, *about in rows:
        yield f"{name:<{names}}  {value}".rstrip()
        for text in (*([] if origin == DEFAULT else [f"from {origin}"]), *about):
            yield from textwrap.wrap(
                text,
                width,
                initial_indent="    ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
