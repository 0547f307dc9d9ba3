"""Divides the table `orders` into hash partitions by (source, order ID), or joins them again, while workers store orders.

A copy of the table with the wanted partitions is filled in batches. A trigger repeats every change of `orders` there, in the same
transaction. When the copy is complete, it replaces the table in one transaction. If the process dies before that, the trigger keeps
repeating changes, and the next call checks and completes the copy.

A batch keeps its rows from being deleted until it has committed. A row that is changed at the same time is in the copy already, or is
changed there after the batch. So the copy never has an older or an erased row.
"""

from collections.abc import Callable
from importlib.resources import files

import asyncpg

from ingest.domain.errors import UserError
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import translated
from ingest.store.migrating import LOCK_SECONDS, migrating_alone, run_in_transaction

PARTITION_KEY = "HASH (source, order_id)"
_BATCH = 5000
# About half an hour, because copying again may take longer.
_FINISHING_ATTEMPTS = 350
_PARTITIONS = """
SELECT CASE relkind WHEN 'r' THEN 1
       ELSE (SELECT count(*) FROM pg_inherits WHERE inhparent = pg_class.oid)::integer END
FROM pg_class WHERE oid = to_regclass($1)
"""
_IS_CONTRACTED = """
SELECT count(*) = 1 FROM pg_constraint
WHERE conrelid = to_regclass('orders') AND contype = 'p' AND pg_get_constraintdef(oid) = 'PRIMARY KEY (source, order_id)'
"""
# A copy of an earlier call is only continued if no migration has changed the columns since.
_IS_CURRENT = """
SELECT NOT EXISTS (
    SELECT FROM (SELECT attname, atttypid, atttypmod, attnotnull FROM pg_attribute
                 WHERE attrelid = 'orders'::regclass AND attnum > 0 AND NOT attisdropped) AS ours
    FULL JOIN (SELECT attname, atttypid, atttypmod, attnotnull FROM pg_attribute
               WHERE attrelid = 'orders_copy'::regclass AND attnum > 0 AND NOT attisdropped) AS theirs
    USING (attname, atttypid, atttypmod, attnotnull) WHERE ours IS NULL OR theirs IS NULL)
"""
_HAS_COPY = """
SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('orders') AND tgname = 'repeat_in_orders_copy')
"""
# The copy would not have these, or they would prevent that it takes the table's place.
_OBSTACLES = """
SELECT 'trigger ' || tgname FROM pg_trigger
WHERE tgrelid = 'orders'::regclass AND NOT tgisinternal AND tgname NOT IN ('repeat_in_orders_copy', 'truncate_orders_copy')
UNION ALL
SELECT 'foreign key ' || conname || ' of ' || conrelid::regclass FROM pg_constraint
WHERE contype = 'f' AND 'orders'::regclass IN (conrelid, confrelid) AND conparentid = 0
UNION ALL
SELECT 'rule ' || rulename FROM pg_rewrite WHERE ev_class = 'orders'::regclass
UNION ALL
SELECT 'policy ' || polname FROM pg_policy WHERE polrelid = 'orders'::regclass
UNION ALL
SELECT 'row-level security' FROM pg_class WHERE oid = 'orders'::regclass AND relrowsecurity
UNION ALL
SELECT 'publication ' || pubname FROM pg_publication_rel JOIN pg_publication ON pg_publication.oid = prpubid
WHERE prrelid = 'orders'::regclass
UNION ALL
SELECT DISTINCT 'materialized view ' || ev_class::regclass
FROM pg_depend JOIN pg_rewrite ON pg_rewrite.oid = objid JOIN pg_class ON pg_class.oid = ev_class
WHERE classid = 'pg_rewrite'::regclass AND refclassid = 'pg_class'::regclass AND refobjid = 'orders'::regclass
  AND relkind = 'm'
ORDER BY 1
"""
_DISCARD = """
LOCK TABLE orders IN ACCESS EXCLUSIVE MODE;
DROP TRIGGER repeat_in_orders_copy ON orders;
DROP TRIGGER truncate_orders_copy ON orders;
DROP FUNCTION repeat_in_orders_copy();
DROP TABLE orders_copy
"""
_COPY = f"""
WITH batch AS MATERIALIZED (
    SELECT * FROM orders WHERE (source, order_id) > ($1, $2) ORDER BY source, order_id LIMIT {_BATCH} FOR KEY SHARE
), copied AS (
    INSERT INTO orders_copy ({{columns}}) SELECT {{columns}} FROM batch ON CONFLICT DO NOTHING
)
SELECT source, order_id, count(*) OVER () FROM batch ORDER BY source DESC, order_id DESC LIMIT 1
"""  # noqa: S608  a constant
_COLUMNS = """
SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
WHERE attrelid = 'orders_copy'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""


class PartitioningRefused(UserError):
    """The table cannot be divided as it is."""


async def set_partitions(
    dsn: str,
    partitions: int,
    *,
    on_progress: Callable[[int], None] = lambda _: None,
    lock_seconds: float = LOCK_SECONDS,
) -> bool:
    """Divide `orders` into this many partitions, 1 for an ordinary table. Returns False if it has them already.

    Args:
        dsn: DSN with a role that owns the tables, in a contracted schema.
        partitions: wanted number.
        on_progress: is called with the number of rows so far.
        lock_seconds: how long an attempt may wait for the table while another transaction uses it.

    Raises:
        PartitioningRefused: with advice in the message. The table has not changed.
        StoreUnavailable: PostgreSQL cannot be used now. Calling again continues.
    """
    async with migrating_alone(dsn), connect(dsn) as connection:
        with translated():
            try:
                return await _set(connection, partitions, on_progress, lock_seconds)
            except asyncpg.LockNotAvailableError as error:
                raise PartitioningRefused(
                    "another transaction uses the table orders. Run the command again when that has ended"
                ) from error


async def _set(
    connection: asyncpg.Connection, partitions: int, on_progress: Callable[[int], None], lock_seconds: float
) -> bool:
    async with connection.transaction(isolation="read_committed"):
        present = await connection.fetchval(_PARTITIONS, "orders")
        copied = await connection.fetchval(_PARTITIONS, "orders_copy") if await has_copy(connection) else None
        is_current = copied is not None and await connection.fetchval(_IS_CURRENT)
        obstacles = [name for (name,) in await connection.fetch(_OBSTACLES)]
        is_contracted = await connection.fetchval(_IS_CONTRACTED)
    wanted = None if present == partitions else partitions
    if wanted is not None and not is_contracted:
        raise PartitioningRefused(
            "orders still has the key of the previous release. When only workers of this release run, add --contract"
        )
    if wanted is not None and obstacles:
        raise PartitioningRefused(
            f"orders has {', '.join(obstacles)}, which its copy would not have."
            " Drop these, and create them again after the division"
        )
    if copied is not None and (copied != wanted or not is_current):
        await run_in_transaction(connection, _DISCARD, lock_seconds)
        copied = None
    if wanted is None:
        return False
    if copied is None:
        await run_in_transaction(connection, _sql("begin").replace("{partitions}", str(wanted)), lock_seconds)
    await _copy(connection, on_progress)
    await run_in_transaction(connection, "ANALYZE orders_copy", lock_seconds)
    await run_in_transaction(connection, _sql("finish"), lock_seconds, _FINISHING_ATTEMPTS)
    return True


async def has_copy(connection: asyncpg.Connection) -> bool:
    """Return whether a division has begun, but is not complete."""
    return bool(await connection.fetchval(_HAS_COPY))


async def _copy(connection: asyncpg.Connection, on_progress: Callable[[int], None]) -> None:
    async with connection.transaction(isolation="read_committed"):
        statement = _COPY.format(columns=await connection.fetchval(_COLUMNS))
    source = order_id = ""
    rows = 0
    while True:
        async with connection.transaction(isolation="read_committed"):
            last = await connection.fetchrow(statement, source, order_id)
        if last is None:
            return
        source, order_id, count = last
        rows += count
        on_progress(rows)


def _sql(name: str) -> str:
    return (files(__package__) / f"{name}.sql").read_text(encoding="utf-8")
