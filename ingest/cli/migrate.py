"""`ingest migrate`: creates or updates the database schema."""

from typing import Annotated

import typer

from ingest.cli.invocation import start
from ingest.process.interrupt import run_interruptible


def migrate(
    *,
    runtime_role: Annotated[
        str | None, typer.Option(help="Grant this role the rights that workers need.", metavar="ROLE")
    ] = None,
    api_role: Annotated[
        str | None, typer.Option(help="Grant this role the rights that the HTTP API needs.", metavar="ROLE")
    ] = None,
) -> None:
    """Create or update the database tables. Does nothing if they are up to date.

    Examples:
    `ingest migrate` creates or updates the tables in the database of INGEST_POSTGRES_DSN.

    `ingest migrate --runtime-role ingest` also grants the role `ingest` the rights that workers need (to read and
    write orders, nothing more), so that workers need not run as the owner of the tables.

    `ingest migrate --api-role ingest_api` also grants the role `ingest_api` the rights that the HTTP API and
    `ingest order erase` need.

    Run it before the first start and after each update. Running it twice, or on many hosts concurrently, is safe.
    """
    from ingest.store import schema

    dsn = start().postgres_dsn.get_secret_value()
    known = schema.migrations()
    applied = run_interruptible(schema.migrate(dsn, known, runtime_role, api_role))
    for migration in applied:
        typer.echo(f"applied {migration.version:04} {migration.name}")
    version, newest = run_interruptible(schema.check_schema(dsn, known)), known[-1].version
    typer.echo(f"schema is at version {version}")
    if version > newest:
        typer.echo(f"a newer release has migrated it; this one knows up to {newest} and can work with it")
    if runtime_role is not None:
        typer.echo(f"{runtime_role} may read and write orders")
    if api_role is not None:
        typer.echo(f"{api_role} may read and erase orders")
