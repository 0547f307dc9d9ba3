"""The end of a delivery: acking its entry, or moving it according to its outcome, in the partition that it comes from.

Every move is one script, so it happens whole or not at all, and every script may be sent again after a lost reply:
a completed step is not done twice.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef, RetryReason
from ingest.domain.deliveries.entry_fields import ORDER_ID
from ingest.domain.deliveries.result import Finished, ResultKind
from ingest.queue.consume.group_access import MOST_IDS, GroupAccess
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.layout.entries import dead_letter_fields, flat, retry_fields
from ingest.queue.layout.keys import LaneKeys
from ingest.queue.redis.connection import translating
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
# The reply of a move for an entry that is neither pending nor in the stream, and was not moved before.
_GONE = 2
# Of the documents of entries that are released with one script, which reads the entries.
_MOST_BYTES = 2 << 20
_T = TypeVar("_T")
# Seconds for which acks wait for a slow server. They continue then, while others are sent.
_WAIT = 0.25


class QueueSettling:
    """Implements `ingest.flow.ports.Settling`.

    While the node of a partition is unavailable, the entries there are neither acked nor released, so that other partitions do not wait. They
    are pending, and are delivered again when the node is available. While a node is slow, the calls for it continue alone, and their
    entries count as acked. If the process dies before they are, they are delivered again and change nothing.
    """

    def __init__(self, partitions: PartitionSet, *, keeps_results: bool) -> None:
        self._partitions = partitions
        self.keeps_results = keeps_results

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """See `PartitionSettling.ack`."""
        return sum(await self._partitions.send("ack", entries, lambda to, own: to.settling.ack(own), _WAIT))

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """See `PartitionSettling.ack_with_results`."""
        acks = self._partitions.send("results", finished, lambda to, own: to.settling.ack_with_results(own), _WAIT)
        return sum(await acks)

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """See `PartitionSettling.reschedule`."""
        partition = self._partitions.of(delivery.entry.stream)
        return await partition.settling.reschedule(delivery, after, attempt, reason, error)

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """See `PartitionSettling.dead_letter`."""
        return await self._partitions.of(delivery.entry.stream).settling.dead_letter(delivery, reason, error)

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """See `PartitionSettling.release`."""
        return sum(await self._partitions.send("release", deliveries, lambda to, own: to.settling.release(own), _WAIT))


class PartitionSettling:
    """Settles the deliveries of one partition. Results are kept for `results_age` seconds, or not if it is 0."""

    def __init__(self, access: GroupAccess, results_age: float = 0.0) -> None:
        self._access = access
        self._ack = partial(access.call_together, over=access.acks)
        self._results_age = int(results_age * 1000)
        self.keeps_results = results_age > 0

    @translating
    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """Finish entries whose rows are committed, and return how many of them this consumer still owned."""
        acked = 0
        for lane, own in self._access.by_lane(entries):
            ids = sorted([each.id for each in own])  # about as Redis keeps them, so that one look finds many
            for start in range(0, len(ids), MOST_IDS):
                page = ids[start : start + MOST_IDS]
                acked += int(await self._ack("ack", [lane.stream, lane.settled], page))
        return acked

    @translating
    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """As `ack`, and publish the results of the orders in the same step. Return how many entries this consumer still owned."""
        acked = 0
        for lane, own in self._access.by_lane(finished):
            own.sort(key=lambda each: each.entry.id)
            for page in _pages(own, lambda each: len(each.results), MOST_IDS):
                acked += await self._ack_results_page(lane, page)
        return acked

    async def _ack_results_page(self, lane: LaneKeys, page: Sequence[Finished]) -> int:
        arguments: list[str | bytes | int] = [self._results_age]
        for each in page:
            arguments += (each.entry.id, _events(each))
        return int(await self._ack("ack_results", [lane.stream, lane.settled, self._access.keys.results], arguments))

    @translating
    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """Move the entry to the retry set, due in `after` seconds. False if this consumer no longer owns it.

        An entry that Redis has lost (a failover, a flush) is put there all the same. That of an order that was erased is
        finished instead.
        """
        keys, lane = self._access.keys, self._access.lane_of(delivery.entry)
        names = [*self._moving(lane, delivery), keys.retry, keys.retry_entries, keys.retry_announced, keys.erased]
        fields = flat(retry_fields(delivery, attempt, reason, error))
        waits_as = delivery.entry.id + lane.suffix
        moved = await self._access.call("reschedule", names, [delivery.entry.id, waits_as, int(after * 1000), *fields])
        if moved == _GONE:
            _log.warning("lost_entry_rescheduled", entry_id=delivery.entry.id, order_id=delivery.order_id)
        return bool(moved)

    @translating
    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """Move the entry to the dead letters. False if this consumer no longer owns it.

        The order of an entry that Redis has lost goes to the retry set instead, because its outcome is unknown. The entry of
        an order that was erased is finished, without a dead letter. An order that is dead already for the same reason adds to the
        count of its dead letter.
        """
        keys, lane = self._access.keys, self._access.lane_of(delivery.entry)
        names = [*self._moving(lane, delivery), keys.dead, keys.dead_seen, keys.erased]
        event = b""
        if self.keeps_results:
            names.append(keys.results)
            event = _dead_letter_event(delivery, reason)
        fields = flat(dead_letter_fields(delivery, reason, error, self._access.name))
        arguments = [delivery.entry.id, self._results_age, event, *fields]
        moved = await self._access.call("dead_letter", names, arguments)
        if moved == _GONE:
            await self.reschedule(delivery, 0.0, delivery.attempt)
        return bool(moved == 1)

    @translating
    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """Release entries for immediate redelivery, uncounted, and return how many were still held.

        The order of an entry that Redis has lost goes to the retry set.
        """
        released = 0
        for lane, held in self._access.by_lane(deliveries):
            for page in _pages(held, lambda each: len(each.document or b""), _MOST_BYTES):
                released += await self._release_page(lane, page)
        return released

    async def _release_page(self, lane: LaneKeys, deliveries: Sequence[Delivery]) -> int:
        names = [part for each in deliveries for part in (each.entry.id, each.fields.get(ORDER_ID, b""))]
        released, gone = await self._access.call("release", [lane.stream, lane.released], names)
        for place in gone:
            await self.reschedule(deliveries[place], 0.0, deliveries[place].attempt)
        return int(released)

    def _moving(self, lane: LaneKeys, delivery: Delivery) -> list[str]:
        # The record belongs to the entry, not to the consumer. A consumer that has lost it finds the record of the other. And of its order: after a
        # failover its ID may be another's.
        name = f"{self._access.group}:{delivery.entry.id}{lane.suffix}:{delivery.order_id or ''}"
        return [lane.stream, lane.settled, self._access.keys.clock, self._access.keys.records + name]


def _pages(items: Sequence[_T], weight: Callable[[_T], int], most: int) -> Iterator[list[_T]]:
    """As many for one script as it processes within milliseconds: at most `MOST_IDS`, that weigh no more than `most` unless one does."""
    page: list[_T] = []
    total = 0
    for each in items:
        total += weight(each)
        if page and (len(page) == MOST_IDS or total > most):
            yield page
            page, total = [], weight(each)
        page.append(each)
    if page:
        yield page


def _events(finished: Finished) -> bytes:
    events = []
    for result in finished.results:
        event = ["order_id", result.order_id, "outcome", result.kind.value]
        if result.announced_as is not None:
            event += ("announced_as", result.announced_as)
        events.append(event)
    return msgspec.msgpack.encode(events)


def _dead_letter_event(delivery: Delivery, reason: DeadReason) -> bytes:
    event = ["outcome", ResultKind.DEAD_LETTERED.value, "reason", reason.value]
    if delivery.order_id is not None:
        event = ["order_id", delivery.order_id, *event]
    return msgspec.msgpack.encode([event])
