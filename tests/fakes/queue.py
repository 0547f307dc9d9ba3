"""A consumer of a group in memory, which implements `Reading`, `Settling`, `Liveness` and `Maintenance`."""

import asyncio
import functools
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

from fakes.group import DeadEntry, MemoryGroup, Pending

from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.dead_letter import StoredSince
from ingest.domain.deliveries.delivery import Abandoned, DeadReason, Delivery, EntryRef, Heartbeat, RetryReason, Sweep
from ingest.domain.deliveries.entry_fields import ORDER_ID
from ingest.domain.deliveries.result import Finished
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.source_state import NO_REPORT, ProcessReport

P = ParamSpec("P")
T = TypeVar("T")


def _over_the_network(
    method: "Callable[Concatenate[MemoryQueue, P], Coroutine[Any, Any, T]]",
) -> "Callable[Concatenate[MemoryQueue, P], Coroutine[Any, Any, T]]":
    """A call that others may come before, that may fail, and whose reply may be lost."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: "MemoryQueue", /, *arguments: P.args, **named: P.kwargs) -> T:
        group = self.group
        group.calls[name] += 1
        await asyncio.sleep(0)
        group.require_available()
        if group.refused[name]:
            group.refused[name] -= 1
            raise QueueUnavailable("the connection was lost before the call")
        result = await method(self, *arguments, **named)
        if group.lost_replies[name]:
            group.lost_replies[name] -= 1
            raise QueueUnavailable("the connection was lost before the reply")
        return result

    return call


class MemoryQueue:
    """One consumer.

    Args:
        group: the group that all consumers share.
        name: name of the consumer.
    """

    def __init__(self, group: MemoryGroup, name: str, *, keeps_results: bool = False) -> None:
        self.group = group
        self.name = name
        self.keeps_results = keeps_results

    # -- source -------------------------------------------------------------------------------------------------

    may_own_more = False

    @_over_the_network
    async def read(self, count: int, block: float) -> list[Delivery]:
        group = self.group
        group.seen[self.name] = group.time()
        if not group.undelivered and block:
            await group.until_added(block)
            group.require_available()
        taken = [group.undelivered.popleft() for _ in range(min(count, len(group.undelivered)))]
        for entry in taken:
            group.pending[entry] = Pending(self.name, 1, group.time())
        return [group.delivery(entry) for entry in taken]

    @_over_the_network
    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        own = [entry for entry in self.group.holds(self.name) if entry not in known]
        return self._claim(own[:count], counted=counted)

    @_over_the_network
    async def claim_abandoned(self, count: int) -> Abandoned:
        group = self.group
        group.seen[self.name] = group.time()
        released = [entry for entry, pending in group.pending.items() if pending.owner is None]
        claimed = self._claim(released[:count])
        if not group.may_judge(self.name):
            return Abandoned(claimed, [])
        dead: list[Delivery] = []
        for name in [name for name, until in group.heard_until.items() if until <= group.time()]:
            dead += self._claim(group.holds(name)[: count - len(claimed) - len(dead)])
            if not group.holds(name):
                group.remove_member(name)
        return Abandoned(claimed, dead)

    # -- settling -----------------------------------------------------------------------------------------------

    @_over_the_network
    async def ack(self, entries: Sequence[EntryRef]) -> int:
        ours = [entry for entry in entries if self.group.owns(self.name, entry)]
        for entry in ours:
            self.group.finish(entry)
        return len(ours)

    @_over_the_network
    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        ours = [each for each in finished if self.group.owns(self.name, each.entry)]
        for each in ours:
            self.group.results += [(result.order_id, result.kind.value) for result in each.results]
            self.group.finish(each.entry)
        return len(ours)

    @_over_the_network
    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        del reason, error
        return self._reschedule(delivery, after, attempt)

    @_over_the_network
    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        group = self.group
        if not group.may_move(self.name, delivery):
            # The result of a lost entry is unknown.
            self._reschedule(delivery, 0.0, delivery.attempt)
            return False
        if delivery.order_id in group.erased:
            if self.keeps_results:
                group.results.append((str(delivery.order_id), "erased"))
            group.finish(delivery.entry)
            return False
        group.dead.append(DeadEntry(delivery.order_id, reason, error, group.time()))
        if self.keeps_results:
            group.results.append((str(delivery.order_id), "dead_lettered"))
        group.moved.add((delivery.entry, delivery.order_id))
        group.finish(delivery.entry)
        return True

    @_over_the_network
    async def release(self, deliveries: Sequence[Delivery]) -> int:
        group = self.group
        released = 0
        for delivery in deliveries:
            if not group.may_move(self.name, delivery) or delivery.entry not in group.stream:
                self._reschedule(delivery, 0.0, delivery.attempt)
                continue
            pending = group.pending[delivery.entry]
            pending.owner, pending.count = None, max(0, pending.count - 1)
            released += 1
        return released

    # -- liveness -----------------------------------------------------------------------------------------------

    @_over_the_network
    async def heartbeat(
        self, lifetime: float, clock: ClockBounds = unknown_time, report: ProcessReport = NO_REPORT
    ) -> Heartbeat:
        group, now = self.group, self.group.keep_steady(clock())
        group.reasons.pop(self.name, None)
        if report.reasons:
            group.reasons[self.name] = [*report.reasons]
        is_first = group.heard_until.get(self.name, 0.0) <= now
        group.heard_until[self.name] = now + lifetime
        if is_first:
            group.heard_since[self.name] = now + lifetime
        leader, until = group.leader
        leads = leader == self.name or until <= now
        if leads:
            group.leader = self.name, now + lifetime
        return Heartbeat(now, is_first=is_first, leads=leads, consumers=len(group.heard_until))

    @_over_the_network
    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        lost = set()
        for entry in entries:
            pending = self.group.pending.get(entry)
            if pending is None or pending.owner is None:
                continue  # there is no other consumer
            if pending.owner == self.name:
                pending.renewed_at = self.group.time()
            else:
                lost.add(entry)
        return lost

    @_over_the_network
    async def leave(self) -> int:
        group = self.group
        if group.leader[0] == self.name:
            group.leader = "", 0.0
        held = len(group.holds(self.name))
        if held:
            group.heard_since.pop(self.name, None)
            group.heard_until[self.name] = 0.0
        else:
            group.remove_member(self.name)
        return held

    # -- maintenance --------------------------------------------------------------------------------------------

    @_over_the_network
    async def sweep(self, idle: float) -> Sweep:
        group, now = self.group, self.group.time()
        old = [
            entry
            for entry, pending in group.pending.items()
            if pending.owner is not None and pending.renewed_at <= now - idle
        ]
        if self.name in group.heard_until and not group.may_judge(self.name):
            old = []
        for entry in old:
            group.pending[entry].owner = None
        known = {*group.undelivered, *group.pending, *group.settled}
        lost = [entry for entry in group.stream if entry not in known]
        for entry in lost:
            group.pending[entry] = Pending(None, 0, now)
        return Sweep(is_complete=True, released=len(old), restored=len(lost))

    @_over_the_network
    async def move_due(self, most: int) -> int:
        group, now = self.group, self.group.time()
        due = sorted((waiting for waiting in group.waiting if waiting.due <= now), key=lambda waiting: waiting.due)
        for waiting in due[:most]:
            group.waiting.remove(waiting)
            if waiting.fields[ORDER_ID].decode() not in group.erased:
                group.add_entry(waiting.fields)
        return len(due[:most])

    @_over_the_network
    async def trim(self, most: int) -> int:
        group = self.group
        finished = sorted(group.settled - group.kept_for_others)[:most]
        for entry in finished:
            group.settled.discard(entry)
            group.stream.pop(entry, None)
        return len(finished)

    @_over_the_network
    async def remove_stale(self, idle: float) -> int:
        group, before = self.group, self.group.time() - idle
        stale = [
            name
            for name, seen_at in group.seen.items()
            if name != self.name and seen_at < before and name not in group.heard_until and not group.holds(name)
        ]
        for name in stale:
            group.remove_member(name)
        return len(stale)

    @_over_the_network
    async def settle_not_found(self, stored: StoredSince) -> int:
        group = self.group
        before = list(group.dead)
        found = [each for each in before if each.reason is DeadReason.NOT_FOUND]
        settled = await stored({str(each.order_id): datetime.fromtimestamp(each.at, UTC) for each in found})
        again = {each.order_id for each in group.dead[len(before) :]}
        left = [each for each in group.dead if each not in found or each.order_id not in set(settled) - again]
        count, group.dead[:] = len(group.dead) - len(left), left
        return count

    # -- how ----------------------------------------------------------------------------------------------------

    def _claim(self, entries: Iterable[EntryRef], *, counted: bool = True) -> list[Delivery]:
        claimed = []
        for entry in entries:
            count = self.group.pending[entry].count + counted
            if entry in self.group.stream:
                self.group.pending[entry] = Pending(self.name, count, self.group.time())
                claimed.append(self.group.delivery(entry))
            else:
                del self.group.pending[entry]  # deleted from the stream, so that the claim removes its record
        return claimed

    def _reschedule(self, delivery: Delivery, after: float, attempt: int) -> bool:
        group = self.group
        if delivery.order_id in group.erased:
            if group.may_move(self.name, delivery):
                group.finish(delivery.entry)
            return False
        if group.may_move(self.name, delivery):
            group.reschedule(delivery, after, attempt)
            group.finish(delivery.entry)
            return True
        if (delivery.entry, delivery.order_id) in group.moved or not group.is_gone(delivery):
            return False
        group.reschedule(delivery, after, attempt)
        return True
