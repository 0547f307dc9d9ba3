"""`ingest migrate`: brings the database's schema up to date."""

import asyncio
from typing import Annotated

import typer

EPILOG = """
Examples:

`ingest migrate` creates or updates the tables in the database of INGEST_POSTGRES_DSN.

`ingest migrate --runtime-role ingest` also lets the role `ingest` do what workers do (read and write orders, no more), so that
they need not run as the tables' owner.

Run it before the first start and after each update; running it twice, or on many hosts at once, is safe.
"""


def migrate(
    *,
    runtime_role: Annotated[
        str | None, typer.Option(help="Grant this role what the workers need.", metavar="ROLE")
    ] = None,
) -> None:
    """Create or update the tables. Does nothing if they are up to date."""
    from ingest.cli.common import start
    from ingest.store import schema

    settings = start()
    known = schema.migrations()
    applied = asyncio.run(schema.migrate(settings.postgres_dsn.get_secret_value(), known, runtime_role))
    for migration in applied:
        typer.echo(f"applied {migration.version:04} {migration.name}")
    typer.echo(f"schema is at version {known[-1].version}")
    if runtime_role is not None:
        typer.echo(f"{runtime_role} may read and write orders")
