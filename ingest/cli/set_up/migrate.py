"""`ingest migrate`: creates or updates the database schema."""

from functools import partial
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
    contract: Annotated[
        bool, typer.Option("--contract", help="Also remove the parts that only the previous release needs.")
    ] = False,
    partitions: Annotated[
        int | None,
        typer.Option(
            help="Divide the table of orders into this many partitions. 1 joins them.", metavar="N", min=1, max=256
        ),
    ] = None,
    source_of_existing: Annotated[
        str | None, typer.Option(help="Give the stored orders without a source to this source.", metavar="NAME")
    ] = None,
    search_indexes: Annotated[
        bool, typer.Option("--search-indexes", help="Also create the indexes for lists of orders.")
    ] = False,
) -> None:
    """Create or update the database tables.

    It changes nothing if they are up to date.

    Examples:
    `ingest migrate` creates or updates the tables in the database of INGEST_POSTGRES_DSN.

    `ingest migrate --runtime-role ingest` also grants the role `ingest` the rights that workers need (to read and
    write orders, nothing more), so that workers need not run as the owner of the tables.

    `ingest migrate --api-role ingest_api` also grants the role `ingest_api` the rights that the HTTP API and
    `ingest order erase` need.

    `ingest migrate --contract` completes an upgrade when no worker of the previous release runs any more. Named sources
    need it once.

    `ingest migrate --partitions 16` also divides the table of orders into 16 partitions, which can be on several disks.
    Workers continue. A large table is copied, which may take hours. If interrupted, run it again.

    `ingest migrate --source-of-existing shop-de` gives orders that were stored without a source to the source `shop-de`,
    while other workers continue. Stop the workers of the unnamed source first.

    `ingest migrate --search-indexes` also creates indexes by which `ingest order list` and the HTTP API find orders of a large
    table by time, status, customer and attributes. Workers continue.

    Run it before the first start and after each update. Running it twice, or on many hosts concurrently, is safe.
    """
    from ingest.domain.source_name import parse_source_name
    from ingest.store import schema

    dsn = start().postgres_dsn.get_secret_value()
    source = None if source_of_existing is None else parse_source_name(source_of_existing)
    known = schema.migrations()
    applied = run_interruptible(schema.migrate(dsn, known, runtime_role, api_role, contract=contract))
    for migration in applied:
        typer.echo(f"applied {migration.version:04} {migration.name}")
    version, newest = (
        run_interruptible(schema.check_schema(dsn, known, has_sources=source is not None)),
        known[-1].version,
    )
    typer.echo(f"schema is at version {version}")
    if version > newest:
        typer.echo(f"a newer release has migrated it; this one knows up to {newest} and can work with it")
    elif not run_interruptible(schema.is_contracted(dsn, known)):
        typer.echo("when no worker of the previous release runs any more, run `ingest migrate --contract`")
    if runtime_role is not None:
        typer.echo(f"{runtime_role} may read and write orders")
    if api_role is not None:
        typer.echo(f"{api_role} may read and erase orders")
    if partitions is not None:
        _set_partitions(dsn, partitions)
    if source is not None:
        _name_existing(dsn, source)
    if search_indexes:
        _create_search_indexes(dsn)


def _set_partitions(dsn: str, partitions: int) -> None:
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.store.partitioning.partitioning import set_partitions

    has_changed = run_with_progress("copying stored orders", partial(set_partitions, dsn, partitions))
    form = "one table" if partitions == 1 else f"divided into {partitions} partitions"
    typer.echo(f"orders is {'now' if has_changed else 'already'} {form}")


def _name_existing(dsn: str, source: str) -> None:
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.store.orders.source_naming import name_existing

    moved = run_with_progress("naming stored orders", partial(name_existing, dsn, source))
    typer.echo(f"{moved:,} stored orders belong to {source} now")


def _create_search_indexes(dsn: str) -> None:
    from ingest.store.orders.search_indexes import create_search_indexes

    created = run_interruptible(create_search_indexes(dsn))
    typer.echo(f"created {', '.join(created)}" if created else "the indexes for lists of orders exist")
