"""A relay on real servers enqueues each committed row of an outbox once, in order, whatever fails in between."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from odd_ids import ODD_IDS
from proxy import Proxy
from redis.asyncio import Redis
from set_ups import database
from shipped import as_admin
from structlog.testing import capture_logs
from support import becomes, connected, eventually

from ingest.domain.errors import ConfigError
from ingest.lab.servers import EmbeddedServers
from ingest.operations.relay.relay import OpenOutbox, Relay
from ingest.operations.relay.rows import RelayTarget, RowEnqueuer
from ingest.operations.relay.source_queues import SourceQueues
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.queue.produce.submission import Orders
from ingest.store.connections.connection import connect
from ingest.store.connections.translation import StoreRefused
from ingest.store.outbox.outbox import Outbox, OutboxBacklog, OutboxOrder, OutboxRow
from ingest.store.outbox.outbox_schema import create_outbox, outbox_sql
from ingest.telemetry.relay_metrics import PENDING, RELAY_METRICS, ROWS, RelayMetrics
from ingest.telemetry.shared_metrics import SharedMetrics

TABLE = "order_outbox"
# Longer than any test waits.
NEVER = 3600.0


def queues_of(
    targets: Mapping[str, RelayTarget], backlog_limit: int = 0, clock: Callable[[], float] = time.monotonic
) -> SourceQueues:
    """The queues of these sources."""
    return SourceQueues(
        {name: RowEnqueuer(target, backlog_limit, clock=clock) for name, target in targets.items()}, clock
    )


class Shop:
    """A program with an outbox, and the queue that its orders go to."""

    def __init__(self, dsn: str, redis_url: str, queue: str, redis: "Redis", sql: asyncpg.Connection) -> None:
        self.dsn = dsn
        self.redis_url = redis_url
        self.queue = queue
        self.redis = redis
        self.sql = sql
        self.keys = Keys.of(queue)
        self.metrics = RelayMetrics.on(shared := SharedMetrics(RELAY_METRICS, 1))
        self.shared_metrics = shared

    async def add(self, *order_ids: str) -> None:
        await self.sql.executemany("INSERT INTO order_outbox (order_id) VALUES ($1)", [(name,) for name in order_ids])

    async def queued(self, *, express: bool = False) -> list[str]:
        """The order IDs in a lane, in the order of the stream."""
        entries = await self.redis.xrange(self.keys.express if express else self.keys.stream)
        return [fields[b"order_id"].decode() for _, fields in entries]

    async def until_queued(self, *order_ids: str) -> None:
        await becomes(self.queued, list(order_ids))

    async def waiting(self) -> list[str]:
        """The order IDs in the table."""
        return [row["order_id"] for row in await self.sql.fetch("SELECT order_id FROM order_outbox ORDER BY id")]

    async def until_empty(self) -> None:
        async def empty() -> bool:
            return not await self.waiting()

        await eventually(empty)

    def outbox(self) -> Any:
        return Outbox.open(self.dsn, TABLE)

    @asynccontextmanager
    async def relaying(
        self,
        *,
        batch: int = 500,
        poll_interval: float = NEVER,
        backlog_limit: int = 0,
        wrap: Callable[[Producer], RelayTarget] = lambda producer: producer,
        open_outbox: OpenOutbox | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[None]:
        """A relay with its own connections while the block runs."""
        stop = asyncio.Event()
        async with Producer.connect(self.redis_url, self.queue, backlog_limit=backlog_limit) as producer:
            relay = Relay(
                open_outbox or self.outbox,
                queues_of({"": wrap(producer)}, backlog_limit, clock),
                batch=batch,
                poll_interval=poll_interval,
                metrics=self.metrics,
                clock=clock,
            )
            running = asyncio.create_task(relay.run(stop))
            try:
                yield
            finally:
                stop.set()
                await asyncio.wait_for(running, 20)


@pytest.fixture
async def shop(empty_dsn: str, redis_url: str, queue_name: str) -> AsyncIterator[Shop]:
    """A shop, which owns its database."""
    dsn = as_admin(empty_dsn)
    await create_outbox(dsn, TABLE, None)
    async with connected(dsn) as sql, Redis.from_url(as_admin(redis_url)) as redis:
        yield Shop(dsn, redis_url, queue_name, redis, sql)


async def accept(rows: Sequence[OutboxRow]) -> OutboxOrder:
    """Announce all rows."""
    return OutboxOrder([row.number for row in rows])


@pytest.fixture
async def relay_role(shop: Shop) -> AsyncIterator[str]:
    """The name of a role for a relay, which a test creates."""
    name = f"relay_{shop.queue.replace('-', '_')}"
    yield name
    await shop.sql.execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')


async def test_rows_are_announced_in_their_order_and_deleted(shop: Shop) -> None:
    names = [f"A-{number}" for number in range(1_200)]
    await shop.add(*names)

    async with shop.relaying(batch=500):
        await shop.until_queued(*names)
        await shop.until_empty()

    assert shop.shared_metrics.total(ROWS, 0) == [1_200]


@pytest.mark.parametrize("by", ["a notification", "looking without the trigger", "looking behind a pooler"])
async def test_new_rows_are_found_by_a_waiting_relay(shop: Shop, by: str) -> None:
    @asynccontextmanager
    async def pooled() -> AsyncIterator[Outbox]:
        async with connect(shop.dsn) as connection:
            yield Outbox(connection, TABLE, is_notified=False)

    if by == "looking without the trigger":
        await shop.sql.execute("DROP TRIGGER order_outbox_notify ON order_outbox")
    poll_interval = NEVER if by == "a notification" else 0.05

    async with shop.relaying(poll_interval=poll_interval, open_outbox=pooled if "pooler" in by else None):
        await shop.add("A-1")
        await shop.until_queued("A-1")
        await shop.add("A-2")
        await shop.until_queued("A-1", "A-2")


async def test_a_row_that_is_committed_after_later_ones_is_not_skipped(shop: Shop) -> None:
    async with connected(shop.dsn) as slow, shop.relaying():
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute("INSERT INTO order_outbox (order_id) VALUES ('slow')")
        await shop.add("quick")
        await shop.until_queued("quick")
        await transaction.commit()
        await shop.until_queued("quick", "slow")


async def test_a_row_that_somebody_has_locked_holds_up_no_other(shop: Shop) -> None:
    await shop.add("locked", "A-1")
    async with connected(shop.dsn) as somebody:
        transaction = somebody.transaction()
        await transaction.start()
        await somebody.execute("UPDATE order_outbox SET express = express WHERE order_id = 'locked'")
        async with shop.relaying(poll_interval=0.05):
            await shop.until_queued("A-1")
            await transaction.commit()
            await shop.until_queued("A-1", "locked")


async def test_a_row_that_is_rolled_back_is_never_announced(shop: Shop) -> None:
    async with shop.relaying():
        transaction = shop.sql.transaction()
        await transaction.start()
        await shop.add("not-placed")
        await transaction.rollback()
        await shop.add("placed")
        await shop.until_queued("placed")


async def test_a_row_that_cannot_be_announced_is_marked_and_stops_nothing(shop: Shop) -> None:
    await shop.add("A-1", " no order ID", "A-2")
    long = json.dumps({"id": "A-3", "note": "x" * (4 * 1024 * 1024)})
    await shop.sql.execute("INSERT INTO order_outbox (order_id, document) VALUES ('A-3', $1)", long)
    await shop.add("A-4")

    async with shop.relaying():
        await shop.until_queued("A-1", "A-2", "A-4")

        async def marked() -> list[Any]:
            rows = await shop.sql.fetch("SELECT order_id, error FROM order_outbox ORDER BY id")
            return [tuple(row) for row in rows] if len(rows) == 2 else []

        (bad, why_bad), (big, why_big) = await eventually(marked)
        assert (bad, big) == (" no order ID", "A-3")
        assert "is not an order ID" in why_bad
        assert "4,194,304" in why_big

        # Corrected, it is tried again.
        await shop.sql.execute("UPDATE order_outbox SET order_id = 'A-5', error = NULL WHERE order_id LIKE ' no%'")
        await shop.add("A-6")
        await shop.until_queued("A-1", "A-2", "A-4", "A-5", "A-6")


async def test_orders_are_announced_by_their_ids_whatever_they_contain(shop: Shop) -> None:
    await shop.add(*ODD_IDS)

    async with shop.relaying():
        await shop.until_queued(*ODD_IDS)


async def test_rows_without_an_identity_are_marked_rather_than_taken_for_one_another(shop: Shop) -> None:
    await shop.sql.execute("ALTER TABLE order_outbox ALTER announcement DROP NOT NULL")
    await shop.sql.execute("INSERT INTO order_outbox (order_id, announcement) VALUES ('A-1', NULL), ('A-1', NULL)")
    await shop.add("A-2")

    async with shop.relaying():
        await shop.until_queued("A-2")

        async def marked() -> list[Any]:
            rows = await shop.sql.fetch("SELECT order_id, error FROM order_outbox")
            return [tuple(row) for row in rows] if len(rows) == 2 else []

        why = "announcement is null: omit it, the column has a default"
        assert await eventually(marked) == [("A-1", why), ("A-1", why)]


async def test_documents_and_lanes_are_kept(shop: Shop) -> None:
    pushed = {"id": "A-1", "total": "2.50"}
    await shop.sql.execute(
        "INSERT INTO order_outbox (order_id, document, express) VALUES ('A-1', $1, true), ('A-2', NULL, false)",
        json.dumps(pushed),
    )

    async with shop.relaying():
        await shop.until_empty()

    [(_, fields)] = await shop.redis.xrange(shop.keys.express)
    assert json.loads(fields[b"document"]) == pushed
    assert await shop.queued() == ["A-2"]


class LosesItsConnection:
    """Announces, and then the relay's connection to PostgreSQL is lost before the rows are deleted."""

    def __init__(self, producer: Producer, shop: Shop, times: int) -> None:
        self._producer = producer
        self._shop = shop
        self._times = times

    async def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        accepted = await self._producer.try_enqueue(orders, idempotency_key=idempotency_key, express=express)
        if self._times:
            self._times -= 1
            async with connected(self._shop.dsn) as sql:
                await sql.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND state = 'idle in transaction'"
                )
        return accepted


async def test_rows_whose_deletion_failed_are_announced_again_and_queued_once(shop: Shop) -> None:
    names = [f"A-{number}" for number in range(20)]
    await shop.add(*names)

    async with shop.relaying(batch=1, wrap=lambda producer: LosesItsConnection(producer, shop, 5)):
        await shop.until_empty()

    assert await shop.queued() == names


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
async def test_two_relays_take_turns_and_keep_the_order_whatever_isolation_is_the_default(
    shop: Shop, isolation: str
) -> None:
    database = await shop.sql.fetchval("SELECT current_database()")
    await shop.sql.execute(f"ALTER DATABASE \"{database}\" SET default_transaction_isolation = '{isolation}'")
    names = [f"A-{number}" for number in range(400)]
    await shop.add(*names)

    with capture_logs() as logs:
        async with shop.relaying(batch=20), shop.relaying(batch=20):
            await shop.until_empty()

    assert await shop.queued() == names
    assert not await logged(logs, "relay_waits")


async def test_a_relay_reads_no_rows_while_another_one_announces(shop: Shop) -> None:
    await shop.add("A-1", "A-2")
    entered, ends = asyncio.Event(), asyncio.Event()

    async def announce(rows: Sequence[OutboxRow]) -> OutboxOrder:
        entered.set()
        await ends.wait()
        return await accept(rows)

    async with shop.outbox() as one, shop.outbox() as two:
        announcing = asyncio.create_task(one.relay(1, announce))
        await entered.wait()
        meanwhile = await two.relay(1, accept)
        ends.set()
        await announcing

    assert meanwhile is None
    assert await shop.waiting() == ["A-2"]


async def test_another_relay_goes_on_at_once_when_the_one_before_is_gone(shop: Shop) -> None:
    await shop.add("A-1")
    entered = asyncio.Event()

    async def hangs(_: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    async with shop.outbox() as gone:
        hanging = asyncio.create_task(gone.relay(10, hangs))
        await entered.wait()
        async with shop.relaying():
            hanging.cancel()
            await asyncio.wait([hanging])
            await shop.until_queued("A-1")


async def test_rows_are_relayed_at_once_though_they_cannot_be_counted(shop: Shop) -> None:
    names = [f"A-{number}" for number in range(40)]
    await shop.add(*names)
    # PostgreSQL cannot determine the age of such a row, and each batch counts the waiting rows.
    await shop.sql.execute("ALTER TABLE order_outbox ALTER created_at TYPE text")
    ticks = itertools.count(step=10)

    with capture_logs() as logs:
        async with shop.relaying(batch=1, clock=lambda: float(next(ticks))):
            await shop.until_queued(*names)
            await shop.until_empty()

    assert [entry["event"] for entry in logs] == ["outbox_not_counted"]


async def logged(logs: Sequence[Any], text: str) -> bool:
    return any(text in str(entry) for entry in logs)


async def test_a_table_that_somebody_has_locked_is_told_from_another_relays_turn(shop: Shop) -> None:
    await shop.add("A-1")

    with capture_logs() as logs:
        async with shop.relaying():
            async with shop.sql.transaction():
                await shop.sql.execute(f"LOCK TABLE {TABLE}")
                await eventually(lambda: logged(logs, "another transaction has locked the outbox"))
            await shop.until_queued("A-1")


async def test_over_the_backlog_limit_rows_stay_until_there_is_room(shop: Shop) -> None:
    names = [f"A-{number}" for number in range(10)]
    await shop.add(*names)

    async with shop.relaying(backlog_limit=4):
        await shop.until_queued(*names[:4])

        await becomes(shop.waiting, names[4:])
        taken = await shop.queued()
        await shop.redis.xtrim(shop.keys.stream, maxlen=0)
        await shop.until_queued(*names[4:8])
        taken += await shop.queued()

    assert taken == names[:8]
    assert shop.shared_metrics.total(PENDING) == [6]


@pytest.mark.parametrize(
    ("rows", "backlog_limit", "document"), [(12, 3, None), (40, 10, json.dumps({"note": "x" * 200_000}))]
)
async def test_rows_for_which_there_was_no_room_are_not_overtaken_by_later_ones(
    shop: Shop, rows: int, backlog_limit: int, document: str | None
) -> None:
    names = [f"A-{number}" for number in range(rows)]
    await shop.sql.executemany(
        "INSERT INTO order_outbox (order_id, document) VALUES ($1, $2)", [(name, document) for name in names]
    )
    taken: list[str] = []

    async with shop.relaying(backlog_limit=backlog_limit), asyncio.timeout(60):
        while len(taken) < rows:
            for _, entries in await shop.redis.xread({shop.keys.stream: "0"}, count=1, block=1000):
                taken += [fields[b"order_id"].decode() for _, fields in entries]
                await shop.redis.xdel(shop.keys.stream, *[entry for entry, _ in entries])

    assert taken == names


class TakesLong:
    """Enqueues, and each call takes six seconds by its clock. It records the number of rows before each call."""

    def __init__(self, producer: Producer, shop: Shop) -> None:
        self._producer = producer
        self._shop = shop
        self.now = 0.0
        self.rows: list[int] = []

    async def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        async with connected(self._shop.dsn) as sql:
            self.rows.append(await sql.fetchval("SELECT count(*) FROM order_outbox"))
        self.now += 6.0
        return await self._producer.try_enqueue(orders, idempotency_key=idempotency_key, express=express)


async def test_what_was_announced_is_deleted_though_announcing_takes_long(shop: Shop) -> None:
    await shop.add(*(f"A-{number}" for number in range(6)))
    async with Producer.connect(shop.redis_url, shop.queue) as producer:
        slow = TakesLong(producer, shop)

        # With a limit of one order, each row is a separate step.
        async with shop.relaying(backlog_limit=1, wrap=lambda _: slow, clock=lambda: slow.now):
            await shop.until_empty()

    assert slow.rows == [6, 6, 4, 4, 2, 2]


async def test_a_table_that_was_created_again_has_new_rows_under_old_numbers(shop: Shop) -> None:
    await shop.add("A-1")
    async with shop.relaying():
        await shop.until_queued("A-1")
        await shop.until_empty()
    await shop.sql.execute("DROP TABLE order_outbox")
    await create_outbox(shop.dsn, TABLE, None)
    await shop.add("A-1")

    async with shop.relaying():
        await shop.until_queued("A-1", "A-1")


async def test_a_row_that_was_changed_after_it_had_been_announced_is_marked(shop: Shop) -> None:
    await shop.add("A-1")
    row = await shop.sql.fetchval("SELECT announcement::text FROM order_outbox")
    async with Producer.connect(shop.redis_url, shop.queue) as producer:
        await producer.enqueue("A-1", idempotency_key=f"outbox:{row}")
    await shop.sql.execute("UPDATE order_outbox SET order_id = 'A-2'")

    async with shop.relaying():

        async def marked() -> str | None:
            return await shop.sql.fetchval("SELECT error FROM order_outbox")

        assert "changed after it was queued" in str(await eventually(marked))
    assert await shop.queued() == ["A-1"]


@pytest.mark.parametrize(
    ("type_", "order_id"),
    [("bigint", "17850"), ("uuid", "0198c0de-0000-7000-8000-000000000001"), ("varchar(36)", "A-1")],
)
async def test_order_ids_may_have_another_type_than_text(shop: Shop, type_: str, order_id: str) -> None:
    await shop.sql.execute(f"ALTER TABLE order_outbox ALTER order_id TYPE {type_} USING NULL")
    await shop.sql.execute(f"INSERT INTO order_outbox (order_id) VALUES ('{order_id}')")

    async with shop.relaying():
        await shop.until_queued(order_id)
        await shop.until_empty()


async def test_of_a_text_that_is_much_too_long_only_the_beginning_is_read(shop: Shop) -> None:
    await shop.add("A" * 1_000_000)
    read: list[OutboxRow] = []

    async def refuse(rows: Sequence[OutboxRow]) -> OutboxOrder:
        read.extend(rows)
        return OutboxOrder(refused={row.number: "too long" for row in rows})

    async with shop.outbox() as outbox:
        await outbox.relay(10, refuse)

    assert [len(row.order_id) for row in read] == [200]


async def test_large_documents_go_in_several_batches(shop: Shop) -> None:
    # Such a text is not compressed much: five are more than one batch may have.
    await shop.sql.execute(
        "INSERT INTO order_outbox (order_id, document) SELECT 'A-' || n, to_jsonb((SELECT string_agg(md5(n || '-' || k), '')"
        " FROM generate_series(1, 90000) k)) FROM generate_series(1, 5) n"
    )
    sizes = []

    async def sees(rows: Any) -> Any:
        sizes.append(len(rows))
        raise asyncio.CancelledError

    async with shop.outbox() as outbox:
        with pytest.raises(asyncio.CancelledError):
            await outbox.relay(500, sees)
    assert 1 <= sizes[0] < 5

    async with shop.relaying():
        await shop.until_queued(*(f"A-{number}" for number in range(1, 6)))


async def test_documents_that_are_stored_small_are_counted_by_their_length(shop: Shop) -> None:
    document = json.dumps({"note": "x" * 3_000_000})
    names = [f"A-{number}" for number in range(12)]
    await shop.sql.executemany(
        "INSERT INTO order_outbox (order_id, document) VALUES ($1, $2)", [(name, document) for name in names]
    )
    batches = []

    async def sees(rows: Sequence[OutboxRow]) -> OutboxOrder:
        batches.append(sum(len(row.document or "") for row in rows))
        return OutboxOrder([row.number for row in rows])

    async with shop.outbox() as outbox:
        while await shop.waiting():
            await outbox.relay(500, sees)

    assert sum(batches) == 12 * len(document)
    # The document with which it is full goes into it.
    assert max(batches) < 8 * 1024 * 1024 + len(document)


async def test_a_document_that_is_too_long_holds_up_no_other(shop: Shop) -> None:
    add = "INSERT INTO order_outbox (order_id, document) VALUES ($1, jsonb_build_object('note', repeat('x', $2)))"
    for name in ("A-1", "A-2", "A-3"):
        await shop.sql.execute(add, name, 20_000_000)
    await shop.sql.execute(add, "A-4", 10)

    async with shop.relaying():
        await shop.until_queued("A-4")

    errors = await shop.sql.fetch("SELECT error FROM order_outbox ORDER BY id")
    assert [str(row["error"]).partition(", and")[0] for row in errors] == ["the document is 20,000,012 bytes long"] * 3


# -- rows that PostgreSQL keeps -------------------------------------------------------------------------------

KEEP = {
    "trigger": (
        """
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER keep BEFORE DELETE OR UPDATE ON order_outbox FOR EACH ROW EXECUTE FUNCTION keep()
        """,
        "DROP TRIGGER keep ON order_outbox",
    ),
    "rule": (
        """
        CREATE RULE keep AS ON DELETE TO order_outbox DO INSTEAD NOTHING;
        CREATE RULE keep_too AS ON UPDATE TO order_outbox DO INSTEAD NOTHING
        """,
        "DROP RULE keep ON order_outbox; DROP RULE keep_too ON order_outbox",
    ),
    "function": (
        """
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not yet'; END $$;
        CREATE TRIGGER keep BEFORE DELETE OR UPDATE ON order_outbox FOR EACH ROW EXECUTE FUNCTION keep()
        """,
        "DROP TRIGGER keep ON order_outbox",
    ),
}


@pytest.mark.parametrize("how", KEEP)
async def test_rows_that_are_kept_are_reported_and_relayed_when_they_can_be(shop: Shop, how: str) -> None:
    keep, let_go = KEEP[how]

    with capture_logs() as logs:
        async with shop.relaying():
            await shop.add("A-0")
            await shop.until_empty()
            async with shop.sql.transaction():
                await shop.add("A-1", " ", "A-2")
                await shop.sql.execute(keep)
            await eventually(lambda: logged(logs, "relay_waits"))
            assert await shop.waiting() == ["A-1", " ", "A-2"]
            await shop.sql.execute(let_go)

            await becomes(shop.waiting, [" "])
            assert await shop.queued() == ["A-0", "A-1", "A-2"]

    assert [entry["log_level"] for entry in logs if entry["event"] == "relay_waits"] == ["error"]
    assert [shop.shared_metrics.total(ROWS, place) for place in (0, 1)] == [[3], [1]]


REFUSE = {
    "foreign key": "CREATE TABLE mail (row bigint REFERENCES order_outbox); INSERT INTO mail VALUES (3), (4)",
    "deferred foreign key": """
        CREATE TABLE mail (row bigint REFERENCES order_outbox DEFERRABLE INITIALLY DEFERRED);
        INSERT INTO mail VALUES (3), (4)
    """,
    "trigger": """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN IF OLD.id IN (3, 4) THEN RAISE 'it is mine'; END IF; RETURN OLD; END $$;
        CREATE TRIGGER refuse BEFORE DELETE ON order_outbox FOR EACH ROW EXECUTE FUNCTION refuse()
    """,
    "trigger with a mistake": """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN IF OLD.id IN (3, 4) THEN DELETE FROM nowhere; END IF; RETURN OLD; END $$;
        CREATE TRIGGER refuse BEFORE DELETE ON order_outbox FOR EACH ROW EXECUTE FUNCTION refuse()
    """,
}


@pytest.mark.parametrize("how", REFUSE)
async def test_rows_whose_deletion_is_refused_are_marked_and_stop_nothing(shop: Shop, how: str) -> None:
    names = [f"A-{number}" for number in range(1, 8)]
    await shop.add(*names)
    await shop.sql.execute(REFUSE[how])

    with capture_logs() as logs:
        async with shop.relaying(batch=5):
            await shop.until_queued(*names)

            await becomes(shop.waiting, ["A-3", "A-4"])
            await shop.add("A-8")
            await shop.until_queued(*names, "A-8")

    rows = await shop.sql.fetch("SELECT error FROM order_outbox ORDER BY id")
    assert [row["error"].partition(":")[0] for row in rows] == ["queued, but PostgreSQL rejects its DELETE"] * 2
    assert [entry["event"] for entry in logs] == ["outbox_rows_refused"]
    assert [shop.shared_metrics.total(ROWS, place) for place in (0, 1)] == [[6], [2]]


async def test_a_row_that_can_neither_be_deleted_nor_marked_is_named_and_delays_no_other(shop: Shop) -> None:
    await shop.add("A-1", "A-2", "A-3")
    await shop.sql.execute(
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN IF OLD.id = 2 THEN RAISE 'it is mine'; END IF; RETURN coalesce(NEW, OLD); END $$;
        CREATE TRIGGER refuse BEFORE DELETE OR UPDATE ON order_outbox FOR EACH ROW EXECUTE FUNCTION refuse()
        """
    )

    async with shop.outbox() as outbox:
        announced = await outbox.relay(10, accept)

    assert announced is not None
    assert (announced.done, announced.refused) == ([1, 3], {})
    assert "the first with the id 2" in str(announced.unavailable)
    assert "raised an error (P0001)" in str(announced.unavailable)
    assert "it is mine" not in str(announced.unavailable)
    assert await shop.waiting() == ["A-2"]


@pytest.mark.parametrize("kept", ["DELETE", "UPDATE"])
async def test_rows_that_row_level_security_keeps_are_told_from_those_that_are_done(
    shop: Shop, relay_role: str, kept: str
) -> None:
    await shop.sql.execute(outbox_sql(TABLE, relay_role))
    await shop.add("A-1", " ", "A-2")
    await shop.sql.execute("ALTER TABLE order_outbox ENABLE ROW LEVEL SECURITY")
    for command in ("SELECT", "UPDATE", "DELETE"):
        mine = "order_id = 'A-2'" if command == kept else "true"
        await shop.sql.execute(f"CREATE POLICY p_{command} ON order_outbox FOR {command} USING ({mine})")

    async def announce(rows: Sequence[OutboxRow]) -> OutboxOrder:
        return OutboxOrder(
            [row.number for row in rows if row.order_id != " "],
            {row.number: "no ID" for row in rows if row.order_id == " "},
        )

    async with as_role(shop.dsn, TABLE, relay_role) as outbox:
        announced = await outbox.relay(10, announce)

    assert announced is not None
    if kept == "DELETE":
        assert (announced.done, announced.refused) == ([3], {2: "no ID"})
        assert "keeps 1 rows of the outbox" in str(announced.unavailable)
        assert isinstance(announced.unavailable, StoreRefused)
    else:
        # A row that must not be changed cannot be locked either: it is not read.
        assert (announced.done, announced.refused, announced.unavailable) == ([3], {}, None)


async def test_a_program_may_mark_its_rows_instead_of_deleting_them(shop: Shop) -> None:
    await shop.sql.execute(
        "CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN UPDATE order_outbox SET error = ''sent'' WHERE id = OLD.id; RETURN NULL; END';"
        " CREATE TRIGGER mark BEFORE DELETE ON order_outbox FOR EACH ROW EXECUTE FUNCTION mark()"
    )
    await shop.add("A-1", "A-2")

    async with shop.outbox() as outbox:
        announced = await outbox.relay(10, accept)

    assert announced == OutboxOrder([1, 2])
    assert await shop.sql.fetchval("SELECT count(*) FROM order_outbox WHERE error = 'sent'") == 2


async def test_a_missing_table_is_refused_at_the_start_with_what_to_do(shop: Shop) -> None:
    await shop.sql.execute("DROP TABLE order_outbox")

    async with Producer.connect(shop.redis_url, shop.queue) as producer:
        relay = Relay(shop.outbox, queues_of({"": producer}), batch=1, poll_interval=NEVER, metrics=shop.metrics)
        with pytest.raises(StoreRefused, match=r"order_outbox.* run `ingest relay --create`"):
            await relay.run(asyncio.Event())


async def test_a_table_that_is_missing_later_is_waited_for(shop: Shop) -> None:
    async with shop.relaying(poll_interval=0.05):
        await shop.add("A-1")
        await shop.until_empty()
        await shop.sql.execute("DROP TABLE order_outbox")
        await create_outbox(shop.dsn, TABLE, None)
        await shop.add("A-2")
        await shop.until_queued("A-1", "A-2")


async def test_its_role_may_use_the_tables_schema_where_nobody_else_may(shop: Shop, relay_role: str) -> None:
    await shop.sql.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    await shop.sql.execute(outbox_sql(TABLE, relay_role))

    async with as_role(shop.dsn, TABLE, relay_role) as outbox:
        assert await outbox.backlog() == OutboxBacklog(rows=0, oldest_age=0.0)


@pytest.fixture
def latin1_dsn(servers: EmbeddedServers) -> Iterator[str]:
    encoding = "ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    with database(servers, migrated=False, options=encoding) as dsn:
        yield dsn


async def test_a_database_of_another_encoding_may_have_an_outbox(latin1_dsn: str) -> None:
    await create_outbox(latin1_dsn, TABLE, None)

    async with connected(latin1_dsn) as sql:
        assert await sql.fetchval(f"SELECT count(*) FROM {TABLE}") == 0


@pytest.mark.parametrize("table", ["order_outbox", "shop.outbox_2"])
async def test_the_printed_sql_may_run_twice_and_its_role_may_do_what_a_relay_needs(
    shop: Shop, redis_url: str, relay_role: str, table: str
) -> None:
    if "." in table:
        await shop.sql.execute("CREATE SCHEMA shop")
    for _ in range(2):
        await shop.sql.execute(outbox_sql(table, relay_role))
    await shop.sql.execute(f"INSERT INTO {table} (order_id) VALUES ('A-1'), (' ')")

    async with Producer.connect(redis_url, shop.queue) as producer, as_role(shop.dsn, table, relay_role) as outbox:
        relay = Relay(
            partial(nullcontext, outbox), queues_of({"": producer}), batch=10, poll_interval=0.05, metrics=shop.metrics
        )
        stop = asyncio.Event()
        running = asyncio.create_task(relay.run(stop))
        await shop.until_queued("A-1")
        stop.set()
        await running

    assert await shop.sql.fetchval(f"SELECT count(*) FROM {table} WHERE error IS NOT NULL") == 1
    async with connected(shop.dsn) as limited:
        await limited.execute(f'SET ROLE "{relay_role}"')
        for forbidden in ("INSERT INTO {} (order_id) VALUES ('x')", "TRUNCATE {}", "UPDATE {} SET order_id = 'x'"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await limited.execute(forbidden.format(table))


@asynccontextmanager
async def as_role(dsn: str, table: str, role: str) -> AsyncIterator[Outbox]:
    """The outbox over a connection with a role's rights."""
    async with Outbox.open(dsn, table) as outbox:
        await outbox._connection.execute(f'SET ROLE "{role}"')
        yield outbox


@pytest.mark.parametrize("role", ["", 'a"; DROP ROLE ingest; --', "it's", "$$", "x" * 64])
async def test_a_role_with_a_name_that_could_be_sql_is_refused(role: str) -> None:
    with pytest.raises(ConfigError, match="--role"):
        outbox_sql(TABLE, role)


async def test_documents_of_one_order_in_both_lanes_are_accepted_in_the_order_of_their_rows(shop: Shop) -> None:
    rows = [(json.dumps({"number": number}), bool(number % 3)) for number in range(60)]
    await shop.sql.executemany("INSERT INTO order_outbox (order_id, document, express) VALUES ('A-1', $1, $2)", rows)

    async with shop.relaying():
        await shop.until_empty()

    entries = [*await shop.redis.xrange(shop.keys.express), *await shop.redis.xrange(shop.keys.stream)]
    accepted = sorted((int(fields[b"pushed_at"]), json.loads(fields[b"document"])["number"]) for _, fields in entries)
    assert [number for _, number in accepted] == list(range(60))


async def test_the_source_of_a_row_is_read_and_is_the_unnamed_one_in_a_table_of_an_earlier_release(shop: Shop) -> None:
    await shop.sql.execute("INSERT INTO order_outbox (order_id, source) VALUES ('A-1', 'shop-de'), ('A-2', DEFAULT)")
    found: list[str] = []

    async def note(rows: Sequence[OutboxRow]) -> OutboxOrder:
        found.extend(row.source for row in rows)
        return OutboxOrder()

    async with shop.outbox() as outbox:
        await outbox.relay(10, note, ["", "shop-de"])
        await shop.sql.execute("ALTER TABLE order_outbox DROP COLUMN source")
        await outbox.relay(10, note, ["", "shop-de"])
        await outbox.plan()
    await create_outbox(shop.dsn, TABLE, None)

    assert found == ["shop-de", "", "", ""]
    assert await shop.sql.fetch("SELECT FROM order_outbox WHERE source = ''") == [(), ()]


async def test_opening_an_outbox_ends_at_once_when_it_is_cancelled_at_a_frozen_server(shop: Shop) -> None:
    parts = urlsplit(shop.dsn)
    with Proxy(parts.port or 5432) as network:
        network.delay(0.01)
        dsn = urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{network.port}")))

        async def open_and_wait() -> None:
            async with Outbox.open(dsn, TABLE):
                await asyncio.sleep(NEVER)

        # The moments are in the handshake, the transaction and the LISTEN of an opening, and after it.
        for moment in range(0, 300, 10):
            opening = asyncio.create_task(open_and_wait())
            await asyncio.wait([opening], timeout=moment / 1000)
            network.freeze()
            opening.cancel()

            assert await asyncio.wait([opening], timeout=20) == ({opening}, set()), f"after {moment} ms"
            network.thaw()
