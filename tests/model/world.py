"""What a machine acts on: the real servers, and the workers with what they believe."""

import asyncio
from dataclasses import dataclass, field

import asyncpg
from consumers import Consumer
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers import ValkeyServer
from ingest.queue.redis.direct_connection import DirectConnection
from ingest.store.orders.order_store import OrderStore


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
    line: DirectConnection
    clerk_line: DirectConnection
    store: OrderStore
    sql: asyncpg.Connection
    has_xnack: bool


@dataclass
class Member:
    """One worker: what it believes to hold, with the row that it has fetched for it, and what it has committed."""

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
