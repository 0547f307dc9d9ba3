"""The environment of a machine: the real servers, and the workers with the state that they believe in."""

import asyncio
from dataclasses import dataclass, field

import asyncpg
from consumers import Consumer
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers import ValkeyServer
from ingest.queue.redis.routed_connection import QueueConnection
from ingest.store.orders.order_store import OrderStore


@dataclass(frozen=True)
class World:
    """The real servers, and the loop in which all of it runs.

    Attributes:
        clerk: like `redis`, but for another user, who may be denied commands.
        line: connection of the user of `redis` for consumers.
        clerk_line: connection of the other user for consumers.
    """

    loop: asyncio.AbstractEventLoop
    server: ValkeyServer
    redis: Redis
    clerk: Redis
    line: QueueConnection
    clerk_line: QueueConnection
    store: OrderStore
    sql: asyncpg.Connection
    has_xnack: bool


@dataclass
class Member:
    """One worker with the entries that it believes to hold, their fetched rows, and its commits."""

    consumer: Consumer
    held: dict[str, Delivery] = field(default_factory=dict)
    rows: dict[str, OrderRow] = field(default_factory=dict)
    committed: set[str] = field(default_factory=set)
    is_frozen: bool = False

    def drop(self, entry_id: str) -> None:
        self.held.pop(entry_id, None)
        self.rows.pop(entry_id, None)
        self.committed.discard(entry_id)

    def undecided(self) -> list[Delivery]:
        return [delivery for entry_id, delivery in self.held.items() if entry_id not in self.committed]

    def storable(self) -> list[str]:
        return [entry_id for entry_id in self.rows if entry_id not in self.committed]
