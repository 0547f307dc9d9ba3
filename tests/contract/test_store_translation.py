"""Failures that PostgreSQL and asyncpg report are translated to texts that name the cause."""

import re
from asyncio import StreamReader, StreamWriter

import asyncpg
import pytest
from listener import listening
from support import connected, eventually

from ingest.domain.errors import StoreUnavailable
from ingest.store.connections.connection import Reconnecting, connect
from ingest.store.connections.pool import Pool, SourceRecords
from ingest.store.connections.translation import StoreRefused, translated
from ingest.store.schema import migrate, migrations

_END_ITSELF = "SELECT pg_terminate_backend(pg_backend_pid())"
_ENDED = re.escape("terminating connection due to administrator command (57P01)")


async def test_a_connection_that_the_server_ends_within_a_transaction_is_told_with_the_servers_words(dsn: str) -> None:
    async with connect(dsn) as connection:
        with pytest.raises(StoreUnavailable, match=f"^{_ENDED}$"), translated():
            async with connection.transaction(readonly=True):
                await connection.fetch(_END_ITSELF)


@pytest.mark.parametrize("pooled", [False, True])
async def test_a_connection_that_the_server_ends_in_a_statement_is_told_with_the_servers_words(
    dsn: str, *, pooled: bool
) -> None:
    connection = Reconnecting(dsn, pooled=pooled)

    with pytest.raises(StoreUnavailable, match=f"^{_ENDED}$"):
        await connection.fetch(_END_ITSELF)

    connection.close()


async def test_a_connection_that_the_server_has_ended_between_two_statements_is_told_to_be_closed(dsn: str) -> None:
    async def read_twice() -> None:
        async with connect(dsn) as connection, connected(dsn) as other:
            with translated():
                async with connection.transaction(readonly=True):
                    await connection.fetch("SELECT 1")
                    await end(connection, other)
                    await connection.fetch("SELECT 1")

    with pytest.raises(StoreUnavailable, match=r"^the connection was closed$"):
        await read_twice()


async def test_a_connection_that_the_server_closes_when_tls_is_asked_for_is_told_to_be_closed() -> None:
    async def close(reader: StreamReader, _: StreamWriter) -> None:
        await reader.read(1)

    async with listening(close) as port:
        with pytest.raises(StoreUnavailable, match=r"^the connection was closed$"):
            async with connect(f"postgresql://a:b@127.0.0.1:{port}/c?sslmode=require"):
                pass


async def test_what_an_earlier_connection_met_is_not_told_of_a_later_one(dsn: str) -> None:
    async with connect(dsn) as connection, connected(dsn) as other:
        await end(connection, other)
        try:
            with translated():
                await other.execute("SELECT pg_cancel_backend(pg_backend_pid())")
        except StoreUnavailable:
            # As in a retry, whose error has the first failure as its context.
            with pytest.raises(StoreUnavailable, match=r"^the connection was closed$"), translated():
                await connection.fetch("SELECT 1")


async def test_where_no_row_is_stored_a_refusal_is_for_a_person_to_put_right(dsn: str) -> None:
    async with connect(dsn) as connection, Pool.open(dsn) as pool:
        for look in (connection.fetch, pool.fetch, SourceRecords(pool.of_source()).fetch):
            with pytest.raises(StoreRefused, match=r"^PostgreSQL reports: division by zero \(22012\)$"), translated():
                await look("SELECT 1 / 0")


async def test_a_trigger_that_forbids_changes_of_the_schema_is_told_by_a_migration(empty_dsn: str) -> None:
    async with connected(empty_dsn) as sql:
        await sql.execute(
            "CREATE FUNCTION forbid() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$"
        )
        await sql.execute("CREATE EVENT TRIGGER forbid ON ddl_command_start EXECUTE FUNCTION forbid()")

    with pytest.raises(
        StoreRefused, match=r"^PostgreSQL reports: a function of the database raised an error \(P0001\)$"
    ):
        await migrate(empty_dsn, migrations())


async def end(connection: asyncpg.Connection, other: asyncpg.Connection) -> None:
    """Have the server end a connection, and wait until its client notices."""
    await other.execute(f"SELECT pg_terminate_backend({connection.get_server_pid()})")

    await eventually(connection.is_closed)
