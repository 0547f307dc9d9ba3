"""A queue under random workers that read, settle, die, freeze, steal and give back: every accepted order is always
somewhere, and none is finished that was not committed."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from ingest.domain.delivery import DeadReason, Delivery
from ingest.queue.connection import control_client
from ingest.queue.consumer import Consumer
from ingest.queue.keys import Keys
from ingest.queue.producer import Producer

T = TypeVar("T")
GROUP = "ingest"
PICK = st.integers(0, 2)
NAMES = ("first", "second", "third")
LEASE = 3600.0

# All there is, at one moment: entries in the stream, those handed out with their consumer and count, the last one
# handed out, and what waits or is buried.
_LOOK = """
local pending = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 10000)
local waiting = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  waiting[#waiting + 1] = cmsgpack.unpack(redis.call('HGET', KEYS[3], id))
end
local group = redis.call('XINFO', 'GROUPS', KEYS[1])[1]
local last
for i = 1, #group, 2 do
  if group[i] == 'last-delivered-id' then last = group[i + 1] end
end
return {redis.call('XRANGE', KEYS[1], '-', '+'), pending, last, waiting, redis.call('XRANGE', KEYS[4], '-', '+'),
        redis.call('HLEN', KEYS[3])}
"""


@dataclass
class Member:
    """One worker as the model knows it: what it believes to hold, and which of that it has committed."""

    consumer: Consumer
    held: dict[str, Delivery] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)

    def take(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.held[delivery.entry_id] = delivery

    def drop(self, entry_id: str) -> None:
        self.held.pop(entry_id, None)
        self.committed.discard(entry_id)


@dataclass(frozen=True)
class Look:
    """The queue at one moment, by order ID."""

    stream: dict[str, str]
    owners: dict[str, str]
    undelivered: set[str]
    waiting: list[str]
    dead: list[str]


def order_of(fields: list[bytes]) -> str:
    return fields[fields.index(b"order_id") + 1].decode()


def one_of(names: list[str], pick: int) -> str:
    return names[pick % len(names)]


def position(entry_id: str) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


class QueueModel(RuleBasedStateMachine):
    """Workers are `Consumer`s over the real server; the model keeps the orders table and what each worker believes."""

    url: str
    queue: str
    runner: asyncio.Runner
    redis: Redis
    numbers = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).numbers += 1
        self.name = f"{self.queue}-{type(self).numbers}"
        self.keys = Keys.of(self.name)
        self.accepted: set[str] = set()
        self.stored: set[str] = set()
        self.look: Look | None = None
        self.members = {name: self.newcomer(name) for name in NAMES}

    def newcomer(self, name: str) -> Member:
        # One connection for all: none of these reads waits long.
        return Member(Consumer(self.redis, self.redis, self.keys, GROUP, name))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def start(self) -> None:
        self.run(self.members["first"].consumer.ensure_group())
        self.enqueue(6)

    # -- what producers and workers do ----------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def enqueue(self, count: int) -> None:
        order_ids = [f"order-{len(self.accepted) + number}" for number in range(count)]
        self.run(Producer(self.redis, self.name).enqueue(order_ids))
        self.accepted |= set(order_ids)

    @precondition(lambda self: self.look and self.look.undelivered)  # an empty read would only wait
    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def read(self, name: str, count: int) -> None:
        member = self.members[name]
        taken = self.run(member.consumer.read(count, 0.001))

        assert 0 < len(taken) <= count
        assert all(delivery.count == 1 for delivery in taken)
        believed = {entry_id for other in self.members.values() for entry_id in other.held}
        assert not believed & {delivery.entry_id for delivery in taken}, "new to everybody"
        member.take(taken)

    @precondition(lambda self: self.holders())
    @rule(pick=PICK, most=st.integers(1, 5))
    def commit(self, pick: int, most: int) -> None:
        name = one_of(self.holders(), pick)
        member = self.members[name]
        for entry_id, delivery in list(member.held.items())[:most]:
            assert delivery.order_id is not None
            member.committed.add(entry_id)
            self.stored.add(delivery.order_id)

    @precondition(lambda self: self.committers())
    @rule(pick=PICK)
    def ack(self, pick: int) -> None:
        name = one_of(self.committers(), pick)
        member = self.members[name]
        entry_ids = sorted(member.committed)
        acked = self.run(member.consumer.ack(entry_ids))

        assert acked <= len(entry_ids)
        for entry_id in entry_ids:
            member.drop(entry_id)

    @precondition(lambda self: self.undecided())
    @rule(pick=PICK, later=st.sampled_from((0.0, 3600.0)))
    def reschedule(self, pick: int, later: float) -> None:
        name = one_of(self.undecided(), pick)
        member = self.members[name]
        for delivery in [d for d in member.held.values() if d.entry_id not in member.committed][:1]:
            first = self.run(member.consumer.reschedule(delivery, later, delivery.attempt + 1))
            again = self.run(member.consumer.reschedule(delivery, later, delivery.attempt + 1))

            assert not again, "as after a lost reply"
            assert first == (delivery.entry_id in self.owned_by(name)), "only who holds an entry moves it"
            member.drop(delivery.entry_id)

    @precondition(lambda self: self.undecided())
    @rule(pick=PICK)
    def bury(self, pick: int) -> None:
        name = one_of(self.undecided(), pick)
        member = self.members[name]
        for delivery in [d for d in member.held.values() if d.entry_id not in member.committed][:1]:
            first = self.run(member.consumer.bury(delivery, DeadReason.NOT_FOUND, "404"))

            assert not self.run(member.consumer.bury(delivery, DeadReason.NOT_FOUND, "404"))
            assert first == (delivery.entry_id in self.owned_by(name)), "only who holds an entry moves it"
            member.drop(delivery.entry_id)

    @precondition(lambda self: self.holders())
    @rule(pick=PICK)
    def give_back_and_leave(self, pick: int) -> None:
        name = one_of(self.holders(), pick)
        member = self.members[name]
        owned = self.owned_by(name)
        released = self.run(member.consumer.release(list(member.held)))
        kept = self.run(member.consumer.leave())

        assert released == len(owned & member.held.keys()), "what others have taken is not given back"
        assert kept == len(owned - member.held.keys()), "what it never knew of, after a lost reply, is still its"
        self.members[name] = self.newcomer(name)

    # -- what goes wrong ------------------------------------------------------------------------------------

    @precondition(lambda self: self.holders())
    @rule(pick=PICK)
    def die(self, pick: int) -> None:
        name = one_of(self.holders(), pick)
        self.members[name] = self.newcomer(name)

    @precondition(lambda self: self.heirs())
    @rule(pick=PICK, count=st.integers(1, 6))
    def claim_own(self, pick: int, count: int) -> None:
        name = one_of(self.heirs(), pick)
        member = self.members[name]
        left = self.owned_by(name) - member.held.keys()
        taken = self.run(member.consumer.claim_own(count, list(member.held)))

        assert {delivery.entry_id for delivery in taken} <= left
        assert len(taken) == min(count, len(left))
        member.take(taken)

    @precondition(lambda self: self.look and self.look.owners)
    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 6), idle=st.sampled_from((0.0, LEASE)))
    def claim_idle(self, name: str, count: int, idle: float) -> None:
        # Idle for no time at all: everybody's lease has run out, as if all others were frozen.
        member = self.members[name]
        taken, _ = self.run(member.consumer.claim_idle(count, idle))

        assert len(taken) <= count
        member.take([delivery for delivery in taken if delivery.entry_id not in member.held])

    @precondition(lambda self: self.holders())
    @rule(pick=PICK)
    def renew(self, pick: int) -> None:
        name = one_of(self.holders(), pick)
        member = self.members[name]
        others = set[str]().union(*(self.owned_by(other) for other in NAMES if other != name))
        lost = self.run(member.consumer.renew(list(member.held)))

        assert lost == member.held.keys() & others, "it learns exactly what others have"
        for entry_id in lost:
            member.drop(entry_id)

    @precondition(lambda self: self.look and self.look.waiting)
    @rule(most=st.integers(1, 5))
    def move_due(self, most: int) -> None:
        assert self.run(self.members["first"].consumer.move_due(most)) <= most

    # -- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def every_accepted_order_is_somewhere_and_only_committed_ones_are_finished(self) -> None:
        if not self.accepted:
            return
        self.look = look = self.run(self.see())
        places = [*look.stream.values(), *look.waiting, *look.dead]
        assert len(places) == len(set(places)), "one entry for each order, in one place"
        assert set(places) | self.stored == self.accepted

    @invariant()
    def an_entry_that_was_handed_out_is_somebodys_until_it_is_finished(self) -> None:
        if self.look:
            assert self.look.stream.keys() == self.look.owners.keys() | self.look.undelivered

    def teardown(self) -> None:
        if self.accepted:
            self.everything_can_still_be_finished()
        self.run(
            self.redis.delete(*(getattr(self.keys, name) for name in ("stream", "retry", "retry_entries", "dead")))
        )

    def everything_can_still_be_finished(self) -> None:
        heir = self.newcomer("heir").consumer
        assert self.look is not None
        unsettled = len(self.look.stream) + len(self.look.waiting)
        for _ in range(4 * unsettled + 4):
            self.run(heir.move_due(100))
            taken, _ = self.run(heir.claim_idle(100, 0))
            if self.look.undelivered:
                taken += self.run(heir.read(100, 0.001))
            self.run(heir.ack([delivery.entry_id for delivery in taken]))
            self.stored |= {delivery.order_id for delivery in taken if delivery.order_id}
            self.look = self.run(self.see())
            if not self.look.stream:
                break
        assert not self.look.stream
        assert {*self.look.waiting, *self.look.dead} | self.stored == self.accepted

    # -- who can do what: a rule that changes nothing is a step wasted ---------------------------------------

    def holders(self) -> list[str]:
        return [name for name, member in self.members.items() if member.held]

    def committers(self) -> list[str]:
        return [name for name, member in self.members.items() if member.committed]

    def undecided(self) -> list[str]:
        return [name for name, member in self.members.items() if member.held.keys() - member.committed]

    def heirs(self) -> list[str]:
        return [name for name, member in self.members.items() if self.owned_by(name) - member.held.keys()]

    # -- what the model can see -----------------------------------------------------------------------------

    def owned_by(self, name: str) -> set[str]:
        if not self.look:
            return set()
        return {entry_id for entry_id, owner in self.look.owners.items() if owner == name}

    async def see(self) -> Look:
        keys = (self.keys.stream, self.keys.retry, self.keys.retry_entries, self.keys.dead)
        reply: Any = await self.redis.eval(_LOOK, len(keys), *keys, GROUP)
        entries, pending, last, waiting, dead, packed = reply
        assert packed == len(waiting), "no fields without a due time"
        stream = {entry_id.decode(): order_of(fields) for entry_id, fields in entries}
        return Look(
            stream=stream,
            owners={entry_id.decode(): owner.decode() for entry_id, owner, *_ in pending},
            undelivered={entry_id for entry_id in stream if position(entry_id) > position(last.decode())},
            waiting=[order_of(fields) for fields in waiting],
            dead=[order_of(fields) for _, fields in dead],
        )


@pytest.mark.timeout(400)  # a failure is made as short as it goes, which takes minutes
def test_no_interleaving_of_workers_loses_an_order_or_finishes_one_that_is_not_stored(
    redis_url: str, queue_name: str
) -> None:
    with asyncio.Runner() as runner:
        client = control_client(redis_url)
        model = type("Model", (QueueModel,), {"url": redis_url, "queue": queue_name, "runner": runner, "redis": client})
        try:
            run_state_machine_as_test(model, settings=settings(max_examples=150, stateful_step_count=50))
        finally:
            runner.run(client.aclose())
