"""Checks PostgreSQL: connection, version, writes, schema, rights and durability."""

from collections.abc import Iterator

from ingest.domain.errors import StoreUnavailable
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.store.inspection import PostgresFacts

_OF = Checks(Area.POSTGRES)

_OLDEST = 150_000
# Values of synchronous_commit that confirm a commit after it is on the disk.
_CONFIRMED_ON_DISK = {"on", "local", "remote_write", "remote_apply"}


def findings(facts: PostgresFacts | StoreUnavailable, connections: int) -> Iterator[Finding]:
    """Report problems that these facts imply for an `ingest worker` that opens this many connections."""
    if isinstance(facts, StoreUnavailable):
        yield _OF.unusable_database(facts, "INGEST_POSTGRES_DSN")
        return
    yield _version(facts)
    yield _OF.round_trip(facts.round_trip, "run the workers near PostgreSQL, or check its load")
    yield _role(facts)
    yield from _writes(facts)
    yield from _durability(facts)
    yield _OF.clock("PostgreSQL", facts.clock_ahead)
    yield _connections(facts, connections)
    yield from _schema(facts)


def _version(facts: PostgresFacts) -> Finding:
    if facts.version_number < _OLDEST:
        return _OF.error(f"PostgreSQL {facts.version} is too old", "use PostgreSQL 15 or newer")
    if facts.is_pooled:
        return _OF.ok(f"PostgreSQL {facts.version} behind a pooler, which is recognized")
    return _OF.ok(f"PostgreSQL {facts.version}")


def _role(facts: PostgresFacts) -> Finding:
    if facts.is_superuser:
        return _OF.warning(
            f"the role {facts.role} is a superuser",
            "run workers as a role without ownership: ingest migrate --runtime-role ROLE",
        )
    return _OF.ok(f"the role {facts.role} is not a superuser")


def _writes(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.is_standby:
        yield _OF.error(
            "is a standby, which does not accept writes",
            "give INGEST_POSTGRES_DSN the primary, or all hosts: postgresql://user@host1,host2/database",
        )
    elif facts.is_read_only:
        yield _OF.error(
            "transactions are read-only here", "set default_transaction_read_only to off for this role and database"
        )
    if facts.encoding != "UTF8":
        yield _OF.error(
            f"the database's encoding is {facts.encoding}: orders with other characters cannot be stored",
            "create the database with the encoding UTF8",
        )


def _durability(facts: PostgresFacts) -> Iterator[Finding]:
    if not facts.fsync:
        yield _OF.error("fsync is off: a crash of its machine can destroy the database", "set fsync to on")
    if facts.synchronous_commit not in _CONFIRMED_ON_DISK:
        yield _OF.warning(
            f"synchronous_commit is {facts.synchronous_commit}: a crash loses orders that were stored and acked",
            "set synchronous_commit to on for this role",
        )
    elif facts.fsync:
        yield _OF.ok("a commit is on the disk when it is confirmed")


def _connections(facts: PostgresFacts, needed: int) -> Finding:
    if facts.is_pooled:
        return _OF.ok("the pooler manages the connections")
    what = f"{facts.used_connections:,} of {facts.most_connections:,} connections are in use, and a worker needs {needed:,}"
    if facts.used_connections + needed > facts.most_connections:
        return _OF.error(
            what, "raise max_connections (or the role's or database's limit), use PgBouncer, or lower INGEST_PROCESSES"
        )
    return _OF.ok(what)


def _schema(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.mismatch:
        what, colon, advice = facts.mismatch.rpartition(": ")
        yield _OF.error(what if colon else advice, advice if colon else "run `ingest migrate` of this release")
        return
    if not facts.is_contracted:
        yield _OF.warning(
            "the tables still have a key that only the previous release needs, so they cannot store several sources",
            "when no worker of the previous release runs, run: ingest migrate --contract",
        )
    yield from _tables(facts)
    if facts.missing:
        yield _OF.error(
            f"the role {facts.role} lacks {', '.join(facts.missing)}",
            f"as the owner of the tables: ingest migrate --runtime-role {facts.role}",
        )
    if facts.required:
        yield _OF.error(
            f"the table orders has columns that need a value: {', '.join(facts.required)}",
            "give each of them a default",
        )
    if facts.retyped:
        yield _OF.warning(
            f"columns of the table orders have other types: {', '.join(facts.retyped)}: values may be rounded or rejected",
            "restore the types with ALTER TABLE orders ALTER COLUMN … TYPE …",
        )
    if facts.not_planned:
        yield _OF.error(
            f"orders cannot be stored: {facts.not_planned}",
            "undo the changes to the tables, restore them, or create them again with ingest migrate",
        )
    elif facts.is_locked:
        yield _locked(facts)
    elif not (
        facts.absent or facts.not_plain or facts.missing or facts.required or facts.retyped or facts.lacks_partition
    ):
        yield _OF.ok("the schema matches this release, and the role may store orders")
        if facts.partitions > 1:
            yield _OF.ok(f"orders is divided into {facts.partitions} partitions")


def _locked(facts: PostgresFacts) -> Finding:
    what = "another transaction has locked orders or erased_orders, so no order is stored"
    if not facts.lockers:
        return _OF.error(what, "wait for it, or end it. pg_locks lists the processes that hold locks on these tables")
    sessions = ", ".join(
        f"process {each.pid} of the role {each.role}"
        + (f" for {each.seconds:.0f} s" if each.seconds is not None else "")
        for each in facts.lockers
    )
    ending = "; ".join(f"SELECT pg_terminate_backend({each.pid})" for each in facts.lockers)
    return _OF.error(f"{what}: {sessions}", f"wait for it, or end its session in psql: {ending}")


def _tables(facts: PostgresFacts) -> Iterator[Finding]:
    if facts.absent:
        yield _OF.error(
            f"the role {facts.role} does not find {', '.join(facts.absent)}",
            "restore dropped or renamed tables, or correct search_path and the rights on the schema: "
            f"ingest migrate --runtime-role {facts.role}",
        )
    for table in facts.not_plain:
        yield _OF.error(
            f"{table} is partitioned, a view or foreign instead of a table as ingest migrate creates it, so it cannot store"
            " orders",
            "replace it with a table as ingest migrate creates it",
        )
    if facts.lacks_partition:
        yield _OF.error(
            "a partition of orders is missing, so some orders cannot be stored",
            "attach it again with ALTER TABLE orders ATTACH PARTITION …",
        )
    if facts.has_copy:
        yield _OF.warning(
            "the division of orders into partitions is not complete, so every change is stored twice",
            "run ingest migrate --partitions again, or with the present number to drop the copy:"
            f" ingest migrate --partitions {max(facts.partitions, 1)}",
        )
    for table in facts.unlogged:
        yield _OF.error(
            f"{table} is unlogged: a crash of PostgreSQL empties it", f"run: ALTER TABLE {table} SET LOGGED"
        )
    if facts.secured:
        yield _OF.warning(
            f"row-level security on {', '.join(facts.secured)} applies to the role {facts.role}: rows that its policies"
            " hide are not found, and others may be rejected",
            f"run: ALTER ROLE {facts.role} BYPASSRLS",
        )
