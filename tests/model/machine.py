"""The model of a queue, which defines the expected state after any step.

It records whether each accepted announcement is finished, the consumer and the number of deliveries of each delivered
entry, the settled entries that are kept for another group, the entries that have left the pending list without an ack, the
live consumers, and the table of orders. It compares all of this with Redis and PostgreSQL after every step. The entries
that workers believe to hold are recorded separately, because they may be wrong.
"""

from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, TypeVar

from consumers import Consumer
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model.look import (
    EXPRESS,
    GROUP,
    LEASE,
    MAIN,
    Hand,
    Idle,
    Look,
    Token,
    by_stream,
    lane_of,
    look_at,
    name_of,
    token_of,
)
from model.steps import Taken, possible_step
from model.world import Member, World
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.orders.order import Order, OrderLine
from ingest.domain.orders.order_row import OrderRow
from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.waiting_reads import IdleReads, WaitingRead
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.combined_calls import CombinedCalls
from ingest.queue.redis.topology import topology_of

T = TypeVar("T")
NAMES = ("first", "second", "third")
LIFETIME = 3600.0
_T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Machine(RuleBasedStateMachine):
    """The state and its invariants. The steps are in the derived classes.

    Attributes:
        here: how often each announcement must be somewhere in Redis.
        promised: the version of an order at the API when it was announced.
        versions: each order's version at the external API.
        table: each order's version in PostgreSQL.
        pending: the group's pending entries.
        deleted: pending entries that were deleted from the stream, which any claim removes.
        lost: delivered entries that have left the pending list without an ack.
        settled: entries that are recorded as finished and kept for the auditor.
        moved: moved entries with their orders, to distinguish them from lost entries.
        live: consumers with a heartbeat.
        standing: consumers whose heartbeat has been uninterrupted for its lifetime.
        leader: the leader of the group's maintenance.
        unread: entries that the auditor, a separate group, has not read, or None without an auditor.
        unacked: entries that the auditor has read and not acked.
        erased: entries that an operator has deleted, which do not have to be finished.
        torn: retries that a rejected move has left without fields or without a time.
        newest: the last entry that was added to each lane.
        gone_groups: lanes whose group an operator has removed.
        missed: entries that were lost or stale at the beginning of the current sweep, which it has to find.
    """

    world: World
    look: Look
    examples = count()

    def __init__(self) -> None:
        super().__init__()
        self.example = next(self.examples)
        self.keys = Keys.of("orders")
        self.here = Counter[Token]()
        self.promised: dict[Token, int] = {}
        self.versions: dict[str, int] = {}
        self.table: dict[str, int] = {}
        self.pending: dict[str, Hand] = {}
        self.deleted: set[str] = set()
        self.lost: set[str] = set()
        self.settled: set[str] = set()
        self.moved: set[tuple[str, str]] = set()
        self.live: set[str] = set()
        self.standing: set[str] = set()
        self.leader: str | None = None
        self.unread: list[str] | None = None
        self.unacked: list[str] = []
        self.erased: set[str] = set()
        self.missed: set[str] = set()
        self.gone_groups: set[str] = set()
        self.torn: set[str] = set()
        self.newest = {EXPRESS: "0-0" + EXPRESS, MAIN: "0-0" + MAIN}
        self.fetches = 0
        self.producer = Producer(self.world.redis, "orders")
        self.batches: list[list[str]] = []
        self.is_batch_repeated = False
        self.letters = PartitionDeadLetters(self.world.redis, "orders")
        self.members = {name: self.newcomer(name) for name in NAMES}

    @initialize()
    def start(self) -> None:
        self.run(self.world.redis.flushall())
        self.run(self.members["first"].consumer.ensure_group())
        for name, member in self.members.items():
            self.heartbeat(name, member.consumer)
            self.mature(name)
        self.announce([self.new_order() for _ in range(6)])

    @rule(step=possible_step())
    def take(self, step: Taken) -> None:
        getattr(self, step.name)(**step.arguments)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.world.loop.run_until_complete(work)
        except Exception as error:
            _forget_how_the_script_got_there(error)
            raise

    def newcomer(self, name: str) -> Member:
        return Member(self.consumer_on(self.world.redis, name))

    def consumer_on(self, redis: Redis, name: str) -> Consumer:
        # All share one connection, because none of these reads waits long.
        line = self.world.line if redis is self.world.redis else self.world.clerk_line
        calls = CombinedCalls(redis, line, topology_of(self.world.server.url))
        waiting = WaitingRead(line, GROUP, name, IdleReads(line, 1.0))
        access = GroupAccess(redis, calls, calls, waiting, self.keys, GROUP, name, has_xnack=self.world.has_xnack)
        return Consumer("orders", access)

    # -- invariants ----------------------------------------------------------------------------------

    @invariant()
    def all_is_where_it_should_be(self) -> None:
        self.look = look = self.see()
        for lane in list(self.gone_groups):
            if look.last[lane] is not None:
                # Made again, it has everything before it.
                self.gone_groups.discard(lane)
                self.settled = {entry_id for entry_id in self.settled if lane_of(entry_id) != lane}
        self.forget_what_was_cleared(look)
        self.missed &= self.lost | self.stale()
        assert look.torn <= self.torn, "what waits has its fields and its time"
        found = look.tokens()
        differs = f"not there: {dict(self.here - found)}; there too often: {dict(found - self.here)}"
        assert found == self.here, f"each announcement is in one place, until it is finished; {differs}"
        assert look.pending == self.pending, "only who may has taken, moved or released entries"
        assert look.lost == self.lost, "only who may has acked, and only the sweep puts back"
        # Notes do not cover entries that an operator has deleted.
        assert look.settled - self.erased == self.settled - self.erased, (
            "what is finished, and nothing else, is noted until all have finished it"
        )
        assert look.pending.keys() - look.stream.keys() == self.deleted
        assert self.released() <= look.released, "what is released can be found without a search"
        assert look.leader == self.leader, "one at most leads"
        for lane, newest in self.newest.items():
            new = look.after(newest)
            self.newest[lane] = new[-1] if new else newest
            if self.unread is not None:
                self.unread += new
        assert self.needed_by_the_auditor() <= look.stream.keys(), "what another group has to finish is kept for it"

    # -- effects of steps on the model -------------------------------------------------------------------------

    def see(self) -> Look:
        return self.run(look_at(self.world.redis, self.keys))

    def new_order(self) -> str:
        order_id = f"{self.example}-{len(self.versions)}"
        self.versions[order_id] = 0
        return order_id

    def announce(self, order_ids: list[str]) -> None:
        """The external API has these orders, new or in a new version, and a producer announces them."""
        for order_id in order_ids:
            self.versions[order_id] += 1
        assert self.run(self.producer.enqueue(order_ids)) == len(order_ids)
        self.batches.append(order_ids)
        self.is_batch_repeated = False
        self.accept(order_ids)

    def accept(self, order_ids: Sequence[str]) -> None:
        """Entries have been added to the end of a lane."""
        look = self.see()
        new = [look.stream[entry_id] for newest in self.newest.values() for entry_id in look.after(newest)]
        assert [token.order_id for token in new] == list(order_ids), "all of it, in order, once"
        for token in new:
            self.here[token] += 1
            # Two announcements within a millisecond cannot be distinguished.
            self.promised.setdefault(token, self.versions.get(token.order_id, 0))

    def hand_over(self, name: str, deliveries: Sequence[Delivery], *, lost: bool) -> None:
        """Entries were delivered. Unless the reply is lost, the worker fetches each of them."""
        member = self.members[name]
        for delivery in deliveries:
            before = self.pending.get(name_of(delivery.entry))
            self.pending[name_of(delivery.entry)] = Hand(name, (before.count if before else 0) + 1)
            assert delivery.count == self.pending[name_of(delivery.entry)].count, "Redis counts"
            entry_id, held = name_of(delivery.entry), member.held.get(name_of(delivery.entry))
            if held is not None and self.token(held) != self.token(delivery):
                member.drop(entry_id)
            elif held is not None and lost:
                # The worker finishes the delivery that it had before the group was lost, and is unaware of this one. An announcement
                # that was coalesced in between may be about a newer version.
                self.promised[self.token(delivery)] = 0
            if not lost:
                # The worker drops an earlier delivery of the entry, and fetches the order again.
                member.drop(entry_id)
                member.held[entry_id] = delivery
                if delivery.order_id is not None:
                    member.rows[entry_id] = self.fetch(delivery, delivery.order_id)

    def fetch(self, delivery: Delivery, order_id: str) -> OrderRow:
        """The current order at the external API. It often changes, and every second order does not have a version."""
        self.fetches += 1
        self.versions[order_id] += self.fetches % 2
        version = self.versions[order_id]
        updated_at = _T0 + timedelta(minutes=version) if order_id[-1] in "02468" else None
        order = Order(order_id, f"version {version}", "EUR", _T0, (OrderLine("SKU", 1, Decimal("2.50")),), updated_at)
        return OrderRow.of(order, _T0 + timedelta(seconds=self.fetches), delivery.attempt, delivery.enqueued_at)

    def heartbeat(self, name: str, consumer: Consumer) -> bool:
        """Send a heartbeat, and return whether it begins a series."""
        heartbeat = self.run(consumer.heartbeat(LIFETIME))
        assert heartbeat.leads == (self.leader in {None, name}), "who leads does so until it is no longer heard"
        if heartbeat.leads:
            self.leader = name
        self.live.add(name)
        return heartbeat.is_first

    def finish(self, entry_id: str) -> None:
        """An entry was acked. Its order must be committed, and not older than at its announcement."""
        if entry_id not in self.deleted:
            token = self.look.stream[entry_id]
            self.here[token] -= 1
            assert self.table.get(token.order_id, -1) >= self.promised[token]
        self.leave_pending(entry_id)

    def leave_pending(self, entry_id: str) -> None:
        """An entry is finished for any reason, and recorded as settled if it is kept for the auditor."""
        self.pending.pop(entry_id)
        self.deleted.discard(entry_id)
        if self.look.audited is not None:
            self.settled.add(entry_id)

    def is_gone(self, delivery: Delivery) -> bool:
        """Whether Redis has lost a held entry, excluding moved entries, which Redis records."""
        entry_id = name_of(delivery.entry)
        if (entry_id, delivery.order_id or "") in self.moved:
            return False
        if entry_id in self.look.stream:
            return self.look.stream[entry_id] != self.token(delivery)  # another one has got its ID
        return entry_id not in self.pending

    def forget_what_was_cleared(self, look: Look) -> None:
        """Pending records of deleted entries, which cannot be claimed."""
        for entry_id in self.deleted - look.pending.keys():
            self.deleted.discard(entry_id)
            self.pending.pop(entry_id, None)

    def schedule(self, delivery: Delivery) -> None:
        """A delivery's announcement is in the retry set now, and there only once, however often it is added.

        A duplicate is allowed here by design. A missing entry may have been stored and acked by another consumer, and acks
        leave no trace. Its order is then handled once more without any effect.
        """
        token = self.token(delivery)
        is_waiting = any(
            entry_id.partition(":")[0] == name_of(delivery.entry) and waiting == token
            for entry_id, waiting in self.look.waiting.items()
            if entry_id in self.look.retry
        )
        self.here[token] += not is_waiting
        self.promised.setdefault(token, self.versions.get(token.order_id, 0))
        self.moved.add((name_of(delivery.entry), delivery.order_id or ""))

    def token(self, delivery: Delivery) -> Token:
        return token_of(name_of(delivery.entry), delivery.fields)

    def clear_away(self, entry_ids: Iterable[str]) -> None:
        """Entries have left the pending list without an ack, and the sweep has to put them back."""
        for entry_id in list(entry_ids):
            del self.pending[entry_id]
            if entry_id in self.deleted:
                self.deleted.discard(entry_id)
            elif entry_id not in self.settled:
                self.lost.add(entry_id)

    def become_stale(self, name: str) -> None:
        """A consumer has not been heard from for longer than the lifetime of a heartbeat and a lease."""
        redis = self.world.redis
        self.live.discard(name)
        self.standing.discard(name)
        self.run(redis.zadd(self.keys.alive, {name: 0}, xx=True))
        if self.leader == name:
            self.leader = None
            self.run(redis.hset(self.keys.maintenance, "until", 0))
        held = [entry_id for entry_id in sorted(self.owned_by(name)) if self.pending[entry_id].idle is Idle.FRESH]
        for stream, ids in by_stream(self.keys, held):
            self.run(redis.xclaim(stream, GROUP, name, 0, ids, idle=int(LEASE * 2000), justid=True))
        for entry_id in held:
            self.pending[entry_id] = replace(self.pending[entry_id], idle=Idle.STALE)

    def mature(self, name: str) -> None:
        """A heartbeat has been kept for its lifetime."""
        self.run(self.world.redis.zadd(self.keys.standing, {name: 0}, xx=True))
        self.standing.add(name)

    # -- permissions -------------------------------------------------------------------------------------

    def awake(self) -> list[str]:
        return [name for name, member in self.members.items() if not member.is_frozen]

    def holders(self) -> list[str]:
        return [name for name in self.awake() if self.members[name].held]

    def busy(self) -> list[str]:
        """Awake, and with something to lose."""
        return [name for name in self.awake() if self.members[name].held or self.under(name)]

    def committers(self) -> list[str]:
        return [name for name in self.awake() if self.members[name].committed]

    def undecided(self) -> list[str]:
        return [name for name in self.awake() if self.members[name].undecided()]

    def storers(self) -> list[str]:
        return [name for name in self.awake() if self.members[name].storable()]

    def successors(self) -> list[str]:
        return [name for name in self.awake() if self.under(name) - self.members[name].held.keys()]

    def under(self, name: str) -> set[str]:
        """Entries that are pending under a name, including released entries that have not been claimed yet."""
        return {entry_id for entry_id, hand in self.pending.items() if hand.owner == name}

    def owned_by(self, name: str) -> set[str]:
        return self.under(name) - self.released()

    def abandoned(self) -> set[str]:
        return {entry_id for entry_id, hand in self.pending.items() if hand.idle is not Idle.FRESH}

    def released(self) -> set[str]:
        return {entry_id for entry_id, hand in self.pending.items() if hand.idle is Idle.RELEASED}

    def owner_of_released(self, name: str) -> str:
        return "" if self.world.has_xnack else name

    def stale(self) -> set[str]:
        return {entry_id for entry_id, hand in self.pending.items() if hand.idle is Idle.STALE}

    def needed_by_the_auditor(self) -> set[str]:
        return {*(self.unread or ()), *self.unacked} - self.erased


def one_of(choices: Sequence[T], pick: int) -> T:
    return choices[pick % len(choices)]


def _forget_how_the_script_got_there(error: BaseException) -> None:
    """Load all scripts, so that a repeated failure looks the same, because an unknown script needs a second try."""
    while error.__context__ is not None:
        if isinstance(error.__context__, NoScriptError):
            error.__context__ = None
            return
        error = error.__context__
