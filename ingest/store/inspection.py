"""Reads facts about a PostgreSQL server and our role's rights, without changes.

Facts are read in read-only transactions. The statement that stores a batch is planned but not run, which reveals a missing column,
key or privilege, even after manual changes to the table.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg

from ingest.domain.errors import StoreLocked, StoreUnavailable
from ingest.domain.source_name import UNNAMED
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import StoreRefused, translated
from ingest.store.lockers import Locker, lockers
from ingest.store.orders.columns import COLUMNS
from ingest.store.orders.upsert import plan_upsert
from ingest.store.partitioning.partitioning import PARTITION_KEY, has_copy
from ingest.store.privileges import RUNTIME_PRIVILEGES
from ingest.store.schema import SchemaMismatch, check_schema, is_contracted, migrations

_CLOCKS = 3
# The same as a worker's lock timeout.
_LOCK_TIMEOUT = "2s"
_NEEDED = [*{privilege.table: None for privilege in RUNTIME_PRIVILEGES}]
# The others may be views.
_STORED = ("orders", "erased_orders")
_SETTINGS = """
SELECT current_setting('server_version') AS version, current_setting('server_version_num')::integer AS version_number,
       current_setting('fsync')::boolean AS fsync, current_setting('synchronous_commit') AS synchronous_commit,
       pg_is_in_recovery() AS is_standby, current_user AS role, rolsuper AS is_superuser,
       current_setting('server_encoding') AS encoding, pg_backend_pid() <> $1 AS is_pooled
FROM pg_roles WHERE rolname = current_user
"""
# The server's default, because the transaction itself is read-only.
_DEFAULT_READ_ONLY = "SELECT current_setting('default_transaction_read_only')::boolean"
# The limits of the login role apply, even if ALTER ROLE … SET role has switched to another role.
_CONNECTIONS = """
SELECT least(current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer,
             CASE WHEN NOT rolsuper THEN least(nullif(datconnlimit, -1), nullif(rolconnlimit, -1)) END) AS most_connections,
       (SELECT coalesce(sum(numbackends), 0)::integer FROM pg_stat_database) AS used_connections
FROM pg_database, pg_roles WHERE datname = current_database() AND rolname = session_user
"""
# A privilege on a table includes all of its columns.
_MISSING = """
SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS needed (privilege, name, attribute)
WHERE NOT CASE WHEN attribute IS NULL THEN has_table_privilege(to_regclass(name), privilege) ELSE coalesce(has_column_privilege(
    to_regclass(name), (SELECT attnum FROM pg_attribute WHERE attrelid = to_regclass(name) AND attname = attribute), privilege), false) END
"""
_REQUIRED = """
SELECT attname FROM pg_attribute
WHERE attrelid = to_regclass('orders') AND attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef
  AND attidentity = '' AND attgenerated = '' AND attname <> ALL ($1::text[])
"""
# The planner converts values to the type of the column, which may round or reject them.
_RETYPED = """
SELECT name || ' is ' || format_type(atttypid, atttypmod) || ' instead of ' || format_type(ours.type::regtype, -1)
FROM unnest($1::text[], $2::text[]) AS ours (name, type) JOIN pg_attribute ON attname = name
WHERE attrelid = to_regclass('orders') AND NOT attisdropped AND (atttypid <> ours.type::regtype OR atttypmod <> -1)
ORDER BY attnum
"""
# Problems of the tables that planning does not reveal. The keys of other partitions do not fit ours, and row-level security hides rows
# only from some roles.
_TABLES = f"""
SELECT name, relkind = 'r' OR coalesce(pg_get_partkeydef(pg_class.oid) = '{PARTITION_KEY}', false) AS is_plain,
       NOT EXISTS (SELECT FROM pg_class AS part WHERE relpersistence <> 'p' AND part.oid IN (
           SELECT pg_class.oid UNION ALL SELECT inhrelid FROM pg_inherits WHERE inhparent = pg_class.oid)) AS is_logged,
       coalesce(row_security_active(pg_class.oid), false) AS is_secured
FROM unnest($1::text[]) AS name LEFT JOIN pg_class ON pg_class.oid = to_regclass(name)
"""  # noqa: S608  a constant
# Of n partitions, each has the modulus n. With a partition of every remainder, their shares add up to 1.
_PARTITIONS = r"""
SELECT count(*)::integer AS partitions,
       relkind = 'p' AND coalesce(sum(1.0 / substring(bound FROM 'modulus (\d+)')::integer), 0) < 0.999 AS lacks_partition
FROM pg_class LEFT JOIN (
    SELECT inhparent, pg_get_expr(relpartbound, part.oid) AS bound FROM pg_inherits JOIN pg_class AS part ON part.oid = inhrelid
) AS parts ON inhparent = pg_class.oid
WHERE pg_class.oid = to_regclass('orders') GROUP BY relkind
"""
# The source's greatest ID by the primary key. If IDs are growing numbers of one length, it is the newest.
_SOME_ORDER = "SELECT order_id FROM orders WHERE source = $1 ORDER BY order_id DESC LIMIT 1"

# Reads one row of each source, by the primary key.
_SOURCES = """
WITH RECURSIVE found (source) AS (
    (SELECT source FROM orders ORDER BY source LIMIT 1)
    UNION ALL
    SELECT (SELECT source FROM orders WHERE source > found.source ORDER BY source LIMIT 1)
    FROM found WHERE found.source IS NOT NULL
)
SELECT source FROM found WHERE source IS NOT NULL
"""


@dataclass(slots=True, kw_only=True)
class PostgresFacts:
    """Facts about a server and our rights.

    Attributes:
        is_pooled: whether a pooler such as PgBouncer assigns transactions to server processes.
        clock_ahead: seconds by which its clock is ahead of this machine's.
        is_standby: whether it replicates another server, and rejects writes.
        is_read_only: whether transactions are read-only by default.
        most_connections: limit of connections of our role in this database.
        used_connections: connections of all roles in all databases.
        mismatch: problem of the schema version, with advice.
        is_contracted: whether the parts of the schema that only the previous release needs are gone.
        absent: tables and views that our role does not find.
        not_plain: tables that are neither ordinary nor partitioned by our key, but views, for example.
        partitions: number of partitions of `orders`, 1 for an ordinary table.
        lacks_partition: whether some orders belong to no partition.
        has_copy: whether a division into partitions is not complete.
        unlogged: tables that a crash empties.
        secured: tables with row-level security that applies to our role.
        missing: privileges that our role lacks, such as `INSERT on orders`.
        required: additional columns of `orders` that need a value.
        retyped: columns of `orders` with another type, such as `total is integer instead of numeric`.
        not_planned: any other reason why the statement that stores orders cannot be run.
        is_locked: whether that statement would wait for another transaction's lock.
        lockers: the sessions with such a lock.
        some_orders: ID of a stored order of each source, or None.
        stored_sources: the sources with stored orders.
    """

    version: str
    version_number: int
    is_pooled: bool
    clock_ahead: float
    round_trip: float
    is_standby: bool
    is_read_only: bool
    fsync: bool
    synchronous_commit: str
    role: str
    is_superuser: bool
    encoding: str
    most_connections: int
    used_connections: int
    mismatch: str = ""
    is_contracted: bool = True
    absent: Sequence[str] = ()
    not_plain: Sequence[str] = ()
    partitions: int = 1
    lacks_partition: bool = False
    has_copy: bool = False
    unlogged: Sequence[str] = ()
    secured: Sequence[str] = ()
    missing: Sequence[str] = ()
    required: Sequence[str] = ()
    retyped: Sequence[str] = ()
    not_planned: str = ""
    is_locked: bool = False
    lockers: Sequence[Locker] = ()
    some_orders: Mapping[str, str | None] = field(default_factory=dict)
    stored_sources: Sequence[str] = ()


async def inspect(dsn: str, sources: Collection[str] = (UNNAMED,)) -> PostgresFacts:
    """Inspect the server and the schema, and read an order of each source. It raises the same errors as `connect`."""
    async with connect(dsn) as connection:
        with translated():
            async with connection.transaction(readonly=True):
                facts = await _server(connection)
    try:
        await check_schema(dsn, migrations())
        facts.is_contracted = await is_contracted(dsn, migrations())
    except SchemaMismatch as error:
        facts.mismatch = str(error)
        return facts
    except StoreRefused as error:
        facts.not_planned = str(error)
    async with connect(dsn) as connection:
        await _schema(connection, facts, sources)
    return facts


async def _server(connection: asyncpg.Connection) -> PostgresFacts:
    is_read_only = await connection.fetchval(_DEFAULT_READ_ONLY)
    [settings] = await connection.fetch(_SETTINGS, connection.get_server_pid())
    [limits] = await connection.fetch(_CONNECTIONS)
    took, ahead = min([await _clock(connection) for _ in range(_CLOCKS)])
    return PostgresFacts(
        **settings,
        **limits,
        clock_ahead=ahead,
        round_trip=took,
        is_read_only=is_read_only and not settings["is_standby"],
    )


async def _clock(connection: asyncpg.Connection) -> tuple[float, float]:
    """Measure the seconds of a round trip, and by how many seconds the server's clock is ahead of ours."""
    started, began = time.monotonic(), time.time()
    clock = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
    took = time.monotonic() - started
    return took, clock - (began + took / 2)


async def _schema(connection: asyncpg.Connection, facts: PostgresFacts, sources: Collection[str]) -> None:
    """Read our role's rights on the tables, and check whether a batch can be stored."""
    with translated():
        async with connection.transaction(readonly=True):
            tables = await connection.fetch(_TABLES, _NEEDED)
            facts.absent = [table["name"] for table in tables if table["is_plain"] is None]
            facts.not_plain = [
                table["name"] for table in tables if table["is_plain"] is False and table["name"] in _STORED
            ]
            for number, lacks in await connection.fetch(_PARTITIONS):
                facts.partitions, facts.lacks_partition = number, lacks
            facts.has_copy = await has_copy(connection)
            facts.unlogged = [table["name"] for table in tables if not table["is_logged"]]
            facts.secured = [table["name"] for table in tables if table["is_secured"]]
            rights = [
                (each.action, each.table, column) for each in RUNTIME_PRIVILEGES for column in each.columns or (None,)
            ]
            missing = await connection.fetch(_MISSING, *zip(*rights, strict=True))
            facts.missing = [
                *{
                    f"{right} on {table if column is None else f'columns of {table}'}": None
                    for right, table, column in missing
                }
            ]
            ours = [column.name for column in COLUMNS]
            facts.required = [row["attname"] for row in await connection.fetch(_REQUIRED, ours)]
            types = [column.type for column in COLUMNS]
            facts.retyped = [change for (change,) in await connection.fetch(_RETYPED, ours, types)]
    if facts.missing or facts.absent:
        return
    try:
        with translated():
            async with connection.transaction(readonly=True):
                await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                await plan_upsert(connection)
                facts.some_orders = {name: await connection.fetchval(_SOME_ORDER, name) for name in sources}
                facts.stored_sources = [name for (name,) in await connection.fetch(_SOURCES)]
    except StoreLocked:
        facts.is_locked = True
        with translated():
            facts.lockers = await lockers(connection)
    except StoreUnavailable as error:
        facts.not_planned = str(error)
