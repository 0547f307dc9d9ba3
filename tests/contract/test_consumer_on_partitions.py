"""One consumer of all partitions of a queue, on one server and on a cluster."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, cast

import pytest
from cluster_set import ClusterSet
from consumers import Consumer
from redis.asyncio import Redis
from servers.kinds import KINDS, Kind
from support import becomes, eventually

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef, Heartbeat
from ingest.domain.errors import QueueUnavailable
from ingest.domain.partitions import Layout, partition_of
from ingest.lab.servers import ValkeyServer
from ingest.queue.consume.consumer import QueueConsumer
from ingest.queue.consume.liveness import QueueLiveness
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.queue.consume.reading import QueueReading
from ingest.queue.consume.server_reads import ServerReads
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key, read_layouts
from ingest.queue.redis.connection import client_for, control_client
from ingest.queue.redis.routed_connection import QueueConnection, open_direct

GROUP = "ingest"
PARTITIONS = 6
BLOCK = 1.0
LIFETIME = 6.0
# An order of each partition.
ORDERS = [next(f"order-{n}" for n in range(1_000) if partition_of(f"order-{n}", PARTITIONS) == p) for p in range(PARTITIONS)]  # fmt: skip


class Queue:
    """A queue with partitions, and its consumers."""

    def __init__(self, url: str, name: str, redis: Redis, stack: AsyncExitStack) -> None:
        self.name = name
        self.redis = redis
        self.record = LayoutRecord(redis, name, PARTITIONS)
        self._url = url
        self._stack = stack

    async def consumer(self, name: str, partitions: int = PARTITIONS) -> QueueConsumer:
        """A consumer that has shown that it is alive."""
        connections = await self._stack.enter_async_context(QueueConnections.open(self._url))
        record = LayoutRecord(connections.control, self.name, partitions)
        consumer = await self._stack.enter_async_context(
            QueueConsumer.open(
                connections,
                record,
                GROUP,
                name,
                BLOCK,
                LIFETIME,
                opened=Consumer,
            )
        )
        await consumer.liveness.heartbeat(LIFETIME)
        return consumer

    @property
    def layout(self) -> Layout:
        return self.record.layout

    async def add(self, *orders: str, layout: Layout | None = None) -> None:
        layout = layout or Layout(self.name, PARTITIONS)
        for order in orders:
            await self.redis.xadd(Keys.of(layout.queue_of_order(order)).stream, {"order_id": order})

    async def pending(self, queues: Sequence[str] | None = None) -> int:
        queues = Layout(self.name, PARTITIONS).queues if queues is None else queues
        found = [await self.redis.xpending(Keys.of(queue).stream, GROUP) for queue in queues]
        return sum(each["pending"] for each in found)

    async def end_heartbeats(self, name: str) -> None:
        """Let a consumer be dead, and the others have been alive for longer than it takes to declare it dead."""
        for queue in Layout(self.name, PARTITIONS).queues:
            keys = Keys.of(queue)
            await self.redis.zadd(keys.alive, {name: 1})
            for other, _ in await self.redis.zrange(keys.standing, 0, -1, withscores=True):
                await self.redis.zadd(keys.standing, {other: 1})


@pytest.fixture(params=["standalone", "cluster"])
def url(
    request: pytest.FixtureRequest,
    shared_server: Callable[[Kind], ValkeyServer],
    shared_cluster: Callable[[Kind], ClusterSet],
) -> str:
    return shared_server(KINDS[0]).url if request.param == "standalone" else shared_cluster(KINDS[0]).url()


@asynccontextmanager
async def opened(url: str, name: str) -> AsyncIterator[Queue]:
    async with AsyncExitStack() as stack, control_client(url) as redis, stack:
        yield Queue(url, name, redis, stack)


@pytest.fixture
async def queue(url: str, queue_name: str) -> AsyncIterator[Queue]:
    async with opened(url, queue_name) as queue:
        yield queue


def orders(deliveries: Sequence[Delivery]) -> list[str]:
    return [str(delivery.order_id) for delivery in deliveries]


@pytest.mark.each_server
async def test_a_delivery_is_settled_in_its_partition(queue: Queue) -> None:
    one = await queue.consumer("one")
    await queue.add(*ORDERS)
    deliveries = {str(each.order_id): each for _ in range(3) for each in await one.reading.read(10, 0.05)}
    assert sorted(deliveries) == sorted(ORDERS)
    first, second, third, *rest = (deliveries[order] for order in ORDERS)

    assert await one.settling.reschedule(first, 60.0, 2)
    assert await one.settling.dead_letter(second, DeadReason.NOT_FOUND, "no such order")
    assert await one.settling.release([third]) == 1
    assert await one.liveness.renew([each.entry for each in rest]) == set()
    assert await one.settling.ack([each.entry for each in rest]) == len(rest)

    of = [Keys.of(name) for name in Layout(queue.name, PARTITIONS).queues]
    assert [await queue.redis.zcard(keys.retry) for keys in of] == [1, 0, 0, 0, 0, 0]
    assert [await queue.redis.xlen(keys.dead) for keys in of] == [0, 1, 0, 0, 0, 0]
    assert orders((await one.reading.claim_abandoned(10)).released) == [ORDERS[2]]
    assert await queue.pending() == 1


@pytest.mark.parametrize("count", [1, 4, 50])
async def test_no_more_entries_are_read_than_there_is_room_for(queue: Queue, count: int) -> None:
    one = await queue.consumer("one")
    await queue.add(*(f"{order}/{number}" for number in range(20) for order in ORDERS))

    taken: list[Delivery] = []
    for read in range(1, 6):
        taken += await one.reading.read(count, BLOCK)

        released = [await queue.redis.zcard(Keys.of(name).released) for name in queue_names(queue)]
        assert len(taken) <= read * count
        # A server that responded late has delivered entries that the next read returns.
        late = await queue.pending() - sum(released) - len(taken)
        assert 0 <= late < count

    assert len(taken) >= min(100, 5 * count - PARTITIONS)


def queue_names(queue: Queue) -> tuple[str, ...]:
    return Layout(queue.name, PARTITIONS).queues


async def test_the_backlog_of_one_partition_fills_the_room(queue: Queue) -> None:
    one = await queue.consumer("one")
    backlog = Layout(queue.name, PARTITIONS).queue_of_order(ORDERS[2])
    for number in range(200):
        await queue.redis.xadd(Keys.of(backlog).stream, {"order_id": str(number)})
    await one.reading.read(60, BLOCK)

    assert len(await one.reading.read(60, BLOCK)) == 60


async def test_a_partition_with_a_backlog_does_not_delay_the_others(queue: Queue) -> None:
    one = await queue.consumer("one")
    backlog = Layout(queue.name, PARTITIONS).queue_of_order(ORDERS[2])
    async with queue.redis.pipeline(transaction=False) as pipe:
        for number in range(5_000):
            pipe.xadd(Keys.of(backlog).stream, {"order_id": str(number)})
        await pipe.execute()
    await one.reading.read(1, BLOCK)
    others = [order for order in ORDERS if order != ORDERS[2]]
    await queue.add(*others)

    # With room for a single entry, each partition gets its turn.
    taken: list[str] = []
    while len(taken) < 4_000 and not set(others) < set(taken):
        taken += orders(await one.reading.read(1, BLOCK))

    assert set(others) < set(taken)


async def read_some_of_a_backlog(queue: Queue) -> tuple[QueueConsumer, set[str]]:
    """A consumer that has read a few entries of each partition, and the orders that it has not read."""
    one = await queue.consumer("one")
    backlog = [f"{order}/{number}" for number in range(50) for order in ORDERS]
    await queue.add(*backlog)
    return one, {*backlog} - {*orders(await one.reading.read(2 * PARTITIONS, BLOCK))}


async def test_a_read_of_a_backlog_leaves_out_a_partition_that_fails(queue: Queue) -> None:
    one, unread = await read_some_of_a_backlog(queue)
    await queue.redis.set(Keys.of(queue_names(queue)[0]).stream, "no stream")
    unread = {order for order in unread if partition_of(order, PARTITIONS) != 0}

    # With more room than the others fill.
    async with asyncio.timeout(60.0):
        while unread:
            unread -= {*orders(await one.reading.read(1_000, BLOCK))}


async def test_a_read_of_a_backlog_fails_while_the_only_server_is_gone(queue_name: str, tmp_path: Path) -> None:
    with KINDS[0].server(tmp_path) as server:
        async with opened(server.url, queue_name) as queue, asyncio.timeout(60.0):
            one, _ = await read_some_of_a_backlog(queue)
            server.kill()

            # An error, because the lost reply may have contained entries.
            with pytest.raises(QueueUnavailable):
                await one.reading.read(20, 0.0)


async def test_a_read_waits_for_an_entry_of_any_partition(queue: Queue) -> None:
    one = await queue.consumer("one")
    assert await one.reading.read(10, 0.05) == []

    for order in ORDERS:
        reading = asyncio.create_task(one.reading.read(10, 30.0))
        await asyncio.sleep(0)
        await queue.add(order)

        async with asyncio.timeout(10.0):
            assert orders(await reading) == [order]


async def test_entries_of_a_dead_consumer_are_claimed_from_all_partitions_at_once(queue: Queue) -> None:
    dead, one = await queue.consumer("dead"), await queue.consumer("one")
    many = [f"{order}/{number}" for number in range(30) for order in ORDERS[:1]] + ORDERS
    await queue.add(*many)
    while await dead.reading.read(100, 0.0):
        pass
    assert await queue.pending() == len(many)

    await queue.end_heartbeats("dead")
    claimed = [await one.reading.claim_abandoned(20), await one.reading.claim_abandoned(100)]

    assert [len(each.dead) for each in claimed] == [20, len(many) - 20]
    assert sorted(orders([*claimed[0].dead, *claimed[1].dead])) == sorted(many)


async def test_a_predecessor_s_entries_are_claimed_from_all_partitions(queue: Queue) -> None:
    predecessor = await queue.consumer("one")
    await queue.add(*ORDERS)
    taken = [each for _ in range(3) for each in await predecessor.reading.read(10, 0.0)]
    one = await queue.consumer("one")

    own: list[Delivery] = []
    while claimed := await one.reading.claim_own(4, {delivery.entry for delivery in own}):
        own += claimed

    assert sorted(orders(own)) == sorted(ORDERS) == sorted(orders(taken))


async def test_the_leader_of_each_partition_maintains_it(queue: Queue) -> None:
    one, two = await queue.consumer("one"), await queue.consumer("two")
    await queue.add(*ORDERS)
    for delivery in [each for _ in range(3) for each in await one.reading.read(10, 0.0)]:
        await one.settling.reschedule(delivery, 0.0, 2)

    assert (await one.liveness.heartbeat(LIFETIME)).leads
    assert not (await two.liveness.heartbeat(LIFETIME)).leads
    assert await two.maintenance.move_due(100) == 0
    assert await one.maintenance.move_due(100) == len(ORDERS)
    assert (await one.maintenance.sweep(60.0)).is_complete
    assert await one.maintenance.trim(100) == await one.maintenance.remove_stale(60.0) == 0
    assert await one.liveness.leave() == 0
    assert (await two.liveness.heartbeat(LIFETIME)).leads


@pytest.mark.parametrize("url", ["cluster"], indirect=True)
async def test_looks_at_idle_partitions_become_rare(queue: Queue) -> None:
    one = await queue.consumer("one")

    # One node, which has at least one of the partitions.
    nodes = [await client_for(queue.redis, Keys.of(name).stream) for name in queue_names(queue)]
    node, partitions = nodes[0], nodes.count(nodes[0])

    async def looks() -> int:
        return int((await node.info("commandstats"))["cmdstat_xreadgroup"]["calls"])

    began = monotonic()
    while monotonic() - began < 3.0:
        assert await one.reading.read(10, BLOCK) == []
    before = await looks()
    assert await one.reading.read(10, 2.0) == []

    assert await looks() - before < 10 * partitions


async def test_a_queue_is_divided_and_reduced_while_it_is_read(queue: Queue) -> None:
    layouts = [Layout(queue.name, 1), Layout(queue.name, 6, (1,), 1), Layout(queue.name, 6, (), 2)]
    layouts += [Layout(queue.name, 2, (6,), 3), Layout(queue.name, 2, (), 4)]
    one = await queue.consumer("one", partitions=1)
    following = asyncio.create_task(one.run())
    read = Counter[str]()
    try:
        for number, layout in enumerate(layouts):
            if layout.generation:
                await queue.record.open_queues(layout)
                await queue.record.write(layout)
            wanted = [f"{order}/{number}" for order in ORDERS]
            await queue.add(*wanted, layout=layout)

            async def all_are_read(wanted: Sequence[str] = wanted) -> bool:
                await one.liveness.heartbeat(LIFETIME)
                deliveries = await one.reading.read(10, 0.05)
                read.update(orders(deliveries))
                await one.settling.ack([delivery.entry for delivery in deliveries])
                return all(read[order] for order in wanted)

            await eventually(all_are_read)
    finally:
        following.cancel()

    assert set(read.values()) == {1}


async def test_a_change_that_is_reverted_between_two_heartbeats_is_followed(queue: Queue) -> None:
    one = await queue.consumer("one", partitions=1)
    following = asyncio.create_task(one.run())
    for layout in (Layout(queue.name, 6, (1,), 1), Layout(queue.name, 1, (6,), 2)):
        await queue.record.write(layout)
    await queue.add(*ORDERS)
    read: list[str] = []

    async def all_are_read() -> bool:
        await one.liveness.heartbeat(LIFETIME)
        read.extend(orders(await one.reading.read(10, 0.05)))
        return sorted(read) == sorted(ORDERS)

    try:
        await eventually(all_are_read)
    finally:
        following.cancel()


async def test_a_record_that_a_failover_has_lost_is_written_again(queue: Queue) -> None:
    recorded = Layout(queue.name, 1, (), 3)
    await queue.record.write(recorded)
    one = await queue.consumer("one", partitions=1)
    following = asyncio.create_task(one.run())
    await queue.redis.delete(layout_key(queue.name), Keys.of(queue.name).clock)

    async def is_written_again() -> bool:
        await one.liveness.heartbeat(LIFETIME)
        return (await read_layouts(queue.redis, {queue.name: 1}))[queue.name] == recorded

    try:
        await eventually(is_written_again, within=10.0)
    finally:
        following.cancel()


@asynccontextmanager
async def opened_partitions(queue: Queue, url: str) -> AsyncIterator[PartitionSet]:
    """Two partitions, as if of two servers."""
    async with (
        QueueConnections.open(url) as connections,
        connections.reading(BLOCK) as reading,
        AsyncExitStack() as stack,
    ):
        two = [
            await stack.enter_async_context(Consumer.sharing(connections, name, GROUP, "one", BLOCK, reading=reading))
            for name in queue_names(queue)[:2]
        ]
        partitions = PartitionSet(lambda _: False, str)
        partitions.replace(two, 1, {})
        yield partitions
        await partitions.close()


def reading_of(partitions: PartitionSet, connection: QueueConnection) -> QueueReading:
    reads = ServerReads(partitions, connection, GROUP, "one")
    return QueueReading(partitions, reads)


async def test_a_call_that_fails_leaves_out_its_partition_for_a_growing_time_and_no_other_call(
    queue: Queue, url: str
) -> None:
    async def fails() -> None:
        raise QueueUnavailable("TRYAGAIN Multiple keys request during rehashing of slot")

    async def succeeds() -> None:
        pass

    async with opened_partitions(queue, url) as partitions:
        good, bad = partitions.all
        for _ in range(3):
            with pytest.raises(QueueUnavailable):
                await partitions.attempt("read", bad, fails)
        await partitions.attempt("heartbeat", bad, succeeds)

        assert bad.troubles["read"][0] == 3
        assert partitions.ready("read") == (good,)
        assert partitions.ready("renew") == (good, bad)
        await partitions.attempt("read", bad, succeeds)
        assert partitions.ready("read") == (good, bad)


async def test_items_that_follow_a_late_call_are_sent_after_it_has_ended(queue: Queue, url: str) -> None:
    responds, ended = asyncio.Event(), asyncio.Event()
    sent: list[str] = []

    async def send(_: object, items: list[EntryRef]) -> int:
        sent.extend(each.id for each in items)
        await responds.wait()
        ended.set()
        return len(items)

    async with opened_partitions(queue, url) as partitions:
        stream = partitions.all[0].reading.streams[0]
        before = await partitions.send("ack", [EntryRef(stream, "first")], send, 0.01)
        responds.set()
        await ended.wait()
        after = await partitions.send("ack", [EntryRef(stream, "second")], send, 60.0)

    assert (before, after) == ([], [1, 1])
    assert sent == ["first", "second"]


async def test_a_partition_that_rejects_acks_is_not_read_until_they_are_tried_again(queue: Queue, url: str) -> None:
    async def fails(*_: object) -> int:
        raise QueueUnavailable("the node is gone")

    async with opened_partitions(queue, url) as partitions:
        good, bad = partitions.all
        with pytest.raises(QueueUnavailable):
            await partitions.send("ack", [EntryRef(bad.reading.streams[0], "order")], fails, 60.0)

        assert [partitions.ready(kind) for kind in ("read", "own", "claim")] == [(good,)] * 3
        assert partitions.ready("renew") == (good, bad)
        assert bad.may_own_more


async def test_entries_whose_acks_are_left_out_are_claimed_although_they_were_held_until_then(
    queue: Queue, url: str
) -> None:
    async def fails() -> None:
        raise QueueUnavailable("the node is gone")

    async with opened_partitions(queue, url) as partitions, open_direct(url, 60.0) as connection:
        good, bad = partitions.all
        await queue.redis.xadd(bad.reading.streams[-1], {"order_id": "order"})
        await bad.access.ensure_group()
        [delivery] = await bad.reading.read(1, 0.0)
        reading = reading_of(partitions, connection)

        async def claim(*_: object) -> int:
            await eventually(lambda: bad in partitions.ready("own"))
            # The caller of the ack holds the entry until all partitions have responded.
            assert await reading.claim_own(10, [delivery.entry]) == []
            return 1

        with pytest.raises(QueueUnavailable):
            await partitions.attempt("ack", bad, fails)
        entries = [EntryRef(each.reading.streams[-1], "1-0") for each in (good, bad)]
        await partitions.send("ack", entries, claim, 60.0)

        assert orders(await reading.claim_own(10, [])) == ["order"]


class LateLiveness:
    """The liveness of one partition whose first reply is late."""

    def __init__(self) -> None:
        self.sent = 0
        self.responds = asyncio.Event()

    async def heartbeat(self, lifetime: float, clock: object, reasons: object) -> Heartbeat:
        del lifetime, clock, reasons
        self.sent += 1
        now = float(self.sent)
        if self.sent == 1:
            await self.responds.wait()
        return Heartbeat(now, is_first=False, leads=False, consumers=1)


async def test_the_time_of_a_late_heartbeat_is_not_used(queue: Queue, url: str) -> None:
    async with opened_partitions(queue, url) as partitions:
        late, _ = partitions.all
        liveness = LateLiveness()
        late.liveness = liveness
        heartbeats = QueueLiveness(partitions, asyncio.Event().wait)

        first = await heartbeats.heartbeat(LIFETIME)
        liveness.responds.set()
        second = await heartbeats.heartbeat(LIFETIME)
        third = await heartbeats.heartbeat(LIFETIME)

    assert second.now >= first.now > 2
    assert (liveness.sent, third.now) == (2, 2.0)


class LateReplies:
    """A connection whose replies about one stream are late."""

    def __init__(self, connection: QueueConnection, stream: str) -> None:
        self._connection = connection
        self._stream = stream
        self.responds = asyncio.Event()

    async def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        replies = await self._connection.call_all(commands)
        if any(self._stream in command for command in commands):
            await self.responds.wait()
        return replies


@pytest.mark.parametrize("has_more", [False, True], ids=["same lanes", "express lane filled"])
async def test_no_entry_of_a_late_reply_is_lost(queue: Queue, url: str, *, has_more: bool) -> None:
    async with opened_partitions(queue, url) as partitions, open_direct(url, 60.0) as connection:
        for each in partitions.all:
            await each.access.ensure_group()
        empty, late = partitions.all
        late_replies = LateReplies(connection, late.reading.streams[-1])
        reading = reading_of(partitions, cast("QueueConnection", late_replies))
        await queue.redis.xadd(late.reading.streams[-1], {"order_id": "order"})

        # This partition alone is read before all of them are.
        empty.has_backlog = True
        before = await reading.read(10, 0.0)
        # By a read of the same partition at its new server.
        late.reading.express_has_more = has_more
        late_replies.responds.set()
        after = await reading.read(10, 60.0)

    assert (orders(before), orders(after)) == ([], ["order"])


async def test_a_queue_that_is_not_read_any_more_still_settles_its_entries(queue: Queue) -> None:
    one = await queue.consumer("one")
    await queue.add(ORDERS[5])
    [delivery] = await one.reading.read(10, BLOCK)

    await one.follow(Layout(queue.name, 2, (), 9))

    assert await one.settling.ack([delivery.entry]) == 1
    await becomes(queue.pending, 0)
