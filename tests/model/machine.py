"""The model of a queue: what must be where, after any step that anybody took.

It knows of each accepted announcement whether it is finished, of each delivered entry in whose hand it is and for the how
manieth time, whose heartbeat is kept, and what the orders table holds; and compares all of it with Redis and PostgreSQL
after every step. What workers believe to hold is kept apart from that: they may be wrong.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count
from typing import Any, TypeVar

import asyncpg
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model.look import GROUP, LEASE, Hand, Idle, Look, Token, look_at
from model.steps import Taken, possible_step
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from ingest.demo.servers import ValkeyServer
from ingest.domain.delivery import Delivery, OrderRow
from ingest.domain.order import Order, OrderLine
from ingest.queue.capabilities import Capabilities
from ingest.queue.consumer import Consumer
from ingest.queue.dead_letters import DeadLetters
from ingest.queue.keys import Keys
from ingest.queue.line import Line
from ingest.queue.producer import Producer
from ingest.store.orders import OrderStore

T = TypeVar("T")
NAMES = ("first", "second", "third")
LIFETIME = 3600.0
_T0 = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class World:
    """The real servers, and the loop in which all of it runs.

    Attributes:
        clerk: as `redis`, for another user, who may be forbidden commands.
        line: of the user of `redis`, for consumers.
        clerk_line: of the other user.
    """

    loop: asyncio.AbstractEventLoop
    server: ValkeyServer
    redis: Redis
    clerk: Redis
    line: Line
    clerk_line: Line
    store: OrderStore
    sql: asyncpg.Connection
    capabilities: Capabilities


@dataclass
class Member:
    """One worker: what it believes to hold, with the row that it has fetched for it, and what it has committed."""

    consumer: Consumer
    held: dict[str, Delivery] = field(default_factory=dict)
    rows: dict[str, OrderRow] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    is_frozen: bool = False
    is_sweeping: bool = False

    def drop(self, entry_id: str) -> None:
        self.held.pop(entry_id, None)
        self.rows.pop(entry_id, None)
        self.committed.discard(entry_id)

    def undecided(self) -> list[Delivery]:
        return [delivery for entry_id, delivery in self.held.items() if entry_id not in self.committed]

    def storable(self) -> list[str]:
        return [entry_id for entry_id in self.rows if entry_id not in self.committed]


class Machine(RuleBasedStateMachine):
    """The state, and what always holds; the steps are in the classes made of it.

    Attributes:
        here: how often each announcement must be somewhere in Redis.
        promised: the version in which an announced order was there to be fetched.
        versions: each order's version at the external API.
        table: each order's version in PostgreSQL.
        pending: the group's pending entries.
        beating: who has a heartbeat.
        standing: whose heartbeat has been kept for its lifetime.
        unread: what the auditor, a group of its own, has not read; None while there is none.
        torn: what a refused move has left without fields or without a time.
        newest: the last entry that was added.
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
        self.beating: set[str] = set()
        self.standing: set[str] = set()
        self.unread: list[str] | None = None
        self.unacked: list[str] = []
        self.keeps_finished = False
        self.torn: set[str] = set()
        self.newest = "0-0"
        self.fetches = 0
        self.producer = Producer(self.world.redis, "orders")
        self.batches: list[list[str]] = []
        self.is_batch_repeated = False
        self.letters = DeadLetters(self.world.redis, "orders")
        self.members = {name: self.newcomer(name) for name in NAMES}

    @initialize()
    def start(self) -> None:
        self.run(self.world.redis.flushall())
        self.run(self.members["first"].consumer.ensure_group())
        for name, member in self.members.items():
            self.run(member.consumer.beat(LIFETIME))
            self.beating.add(name)
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
        # One connection for all: none of these reads waits long.
        line = self.world.line if redis is self.world.redis else self.world.clerk_line
        return Consumer(redis, line, line, self.keys, GROUP, name, capabilities=self.world.capabilities)

    # -- what always holds ----------------------------------------------------------------------------------

    @invariant()
    def all_is_where_it_should_be(self) -> None:
        self.look = look = self.see()
        assert look.torn <= self.torn, "what waits has its fields and its time"
        assert look.tokens() == self.here, "each announcement is in one place, until it is finished"
        assert look.pending == self.pending, "only who may has taken, moved or given back entries"
        assert look.pending.keys() <= look.stream.keys()
        assert self.keeps_finished or not look.finished, "what is finished is gone"
        new = look.after(self.newest)
        self.newest = new[-1] if new else self.newest
        if self.unread is not None:
            self.unread += new
        assert self.needed_by_the_auditor() <= look.stream.keys(), "what another group has to finish is kept for it"

    # -- what steps do to the model -------------------------------------------------------------------------

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
        """Entries have been added: they are at the end of the stream."""
        look = self.see()
        new = [look.stream[entry_id] for entry_id in look.after(self.newest)]
        assert [token.order_id for token in new] == list(order_ids), "all of it, in order, once"
        for token in new:
            self.here[token] += 1
            # Announced twice within a millisecond, the two cannot be told apart.
            self.promised.setdefault(token, self.versions.get(token.order_id, 0))

    def hand_over(self, name: str, deliveries: Sequence[Delivery], *, lost: bool) -> None:
        """Entries were delivered; unless the reply is lost, the worker fetches each of them."""
        member = self.members[name]
        for delivery in deliveries:
            before = self.pending.get(delivery.entry_id)
            self.pending[delivery.entry_id] = Hand(name, (before.count if before else 0) + 1)
            assert delivery.count == self.pending[delivery.entry_id].count, "Redis counts"
            if not lost and delivery.entry_id not in member.held:
                member.held[delivery.entry_id] = delivery
                if delivery.order_id is not None:
                    member.rows[delivery.entry_id] = self.fetch(delivery, delivery.order_id)

    def fetch(self, delivery: Delivery, order_id: str) -> OrderRow:
        """The order as the external API has it now: it often changes; every second order has no version of its own."""
        self.fetches += 1
        self.versions[order_id] += self.fetches % 2
        version = self.versions[order_id]
        updated_at = _T0 + timedelta(minutes=version) if order_id[-1] in "02468" else None
        order = Order(order_id, f"version {version}", "EUR", _T0, (OrderLine("SKU", 1, Decimal("2.50")),), updated_at)
        return OrderRow(order, _T0 + timedelta(seconds=self.fetches), delivery.attempt, delivery.enqueued_at)

    def finish(self, entry_id: str) -> None:
        """An entry was acked: its order had to be committed, not older than when it was announced."""
        self.pending.pop(entry_id, None)
        token = self.look.stream[entry_id]
        self.here[token] -= 1
        assert self.table.get(token.order_id, -1) >= self.promised[token]

    def silence(self, name: str) -> None:
        """Nothing is heard of a name for longer than a heartbeat lives and a lease lasts."""
        redis = self.world.redis
        self.beating.discard(name)
        self.standing.discard(name)
        self.run(redis.zadd(self.keys.alive, {name: 0}, xx=True))
        held = [entry_id for entry_id, hand in self.pending.items() if hand.owner == name and hand.idle is Idle.FRESH]
        if held:
            idle = int(LEASE * 2000)
            self.run(redis.xclaim(self.keys.stream, GROUP, name, 0, held, idle=idle, justid=True))
        for entry_id in held:
            self.pending[entry_id] = replace(self.pending[entry_id], idle=Idle.SILENT)

    def mature(self, name: str) -> None:
        """A heartbeat has been kept for its lifetime."""
        self.run(self.world.redis.zadd(self.keys.standing, {name: 0}, xx=True))
        self.standing.add(name)

    # -- who can do what -------------------------------------------------------------------------------------

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
        """What is pending under a name: what it owns, and what it has given back and nobody has taken yet."""
        return {entry_id for entry_id, hand in self.pending.items() if hand.owner == name}

    def owned_by(self, name: str) -> set[str]:
        return self.under(name) - self.given_back()

    def abandoned(self) -> set[str]:
        return {entry_id for entry_id, hand in self.pending.items() if hand.idle is not Idle.FRESH}

    def given_back(self) -> set[str]:
        return {entry_id for entry_id, hand in self.pending.items() if hand.idle is Idle.GIVEN_BACK}

    def needed_by_the_auditor(self) -> set[str]:
        return {*(self.unread or ()), *self.unacked}


def one_of(choices: Sequence[T], pick: int) -> T:
    return choices[pick % len(choices)]


def _forget_how_the_script_got_there(error: BaseException) -> None:
    """Make a failure look the same when it is repeated: a script that the server does not know yet is sent at a second try."""
    while error.__context__ is not None:
        if isinstance(error.__context__, NoScriptError):
            error.__context__ = None
            return
        error = error.__context__
