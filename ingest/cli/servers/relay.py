"""`ingest relay`: moves the rows of an outbox to the queue."""

from typing import Annotated

import typer

from ingest.cli.invocation import say, start
from ingest.process.interrupt import run_interruptible

_ROLE = "ingest_relay"


def relay(
    *,
    print_sql: Annotated[bool, typer.Option("--print-sql", help="Print the SQL of the table, and exit.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the table, and exit.")] = False,
    role: Annotated[
        str | None,
        typer.Option(
            help=f"With --print-sql or --create: the role that relays connect as, created if there is none. Defaults to {_ROLE}.",
            metavar="ROLE",
        ),
    ] = None,
    no_role: Annotated[
        bool, typer.Option("--no-role", help="With --print-sql or --create: no role and no grants.")
    ] = False,
) -> None:
    """Enqueue the orders of an outbox, until stopped.

    An outbox is a table in the PostgreSQL of another program, which writes its orders into it.

    Each committed row is queued once, in the order of the rows, and then deleted. While PostgreSQL or Redis is
    unavailable, or the backlog is at INGEST_BACKLOG_LIMIT, rows stay and the relay waits.

    Examples:
    `ingest relay --print-sql` prints the statements that create the table, for your own migrations.

    `ingest relay --create` creates the table in the database of INGEST_OUTBOX_DSN.

    `INGEST_OUTBOX_DSN=postgresql://ingest_relay:secret@shop-db/shop ingest relay` enqueues the rows of the table,
    until stopped.

    Stop it with SIGTERM or Ctrl-C: it finishes its batch, and exits with 0. Any number of relays may run, on any
    host. They take turns.
    """
    from ingest.services.relay import outbox_dsn, run_relay
    from ingest.store.outbox.outbox_schema import create_outbox, outbox_sql

    if print_sql and create:
        raise typer.BadParameter("--print-sql and --create exclude each other")
    if role is not None and no_role:
        raise typer.BadParameter("--role and --no-role exclude each other")
    if (role is not None or no_role) and not (print_sql or create):
        raise typer.BadParameter("--role and --no-role require --print-sql or --create")
    settings = start()
    owner = None if no_role else role or _ROLE
    if print_sql:
        typer.echo(outbox_sql(settings.outbox_table, owner), nl=False)
    elif create:
        run_interruptible(create_outbox(outbox_dsn(settings), settings.outbox_table, owner))
        say(f"the outbox {settings.outbox_table} is there")
    else:
        raise typer.Exit(run_relay(settings))
