"""Announces orders of one shop during the whole run, and records accepted orders with their expected results.

An order is accepted when `enqueue` has returned. An announcement that is given up is unconfirmed, because it may have
arrived. Most orders are unchanged bundled ones. Some do not exist, some are broken, and some change after their
announcement and are announced again. Foreign producers add entries that do not name an order.
"""

import asyncio
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

import msgspec
from redis.exceptions import RedisError

from chaos.history import History
from chaos.stage import Shop
from ingest.domain.deliveries.accepted import Durability
from ingest.domain.deliveries.delivery import DeadReason
from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.catalogue import ORDERS, Catalogue
from ingest.lab.upstream.samples import sample_orders
from ingest.operations.reconcile import Expected
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

WIDE = "WIDE-"
_EVERY = 0.1
# Then an announcement is given up, as by a caller with a deadline.
_GIVES_UP_AFTER = 3.0
_OTHER = b'{"id":"other"}'
_BROKEN = (b"<html>502</html>", b'{"id": oops}', b"[]")
_SHARES = {"_plain": 0.81, "_missing": 0.02, "_broken": 0.02, "_changing": 0.03, "_change": 0.12}
# Some of the changing orders change repeatedly, so that several versions are on their way concurrently.
_RESTLESS = 5
_NAMELESS = 0.05  # of all ticks


class Orders:
    """The announced orders of a shop.

    Attributes:
        accepted: orders that were accepted for certain.
        unconfirmed: orders that may have been accepted.
        versions: number of versions of each changing order.
        nameless: number of accepted and of unconfirmed entries without an order or with an invalid ID.
    """

    def __init__(self, source: str, currency: str, history: History) -> None:
        samples = sample_orders()
        self._source = source
        self._history = history
        self._usual = Catalogue(samples, Behaviour(any_id=True, currency=currency))
        self._special: dict[str, Expected] = {}
        self.bundled = list(samples)
        self.accepted: set[str] = set()
        self.unconfirmed: set[str] = set()
        self.versions: dict[str, int] = {}
        self.nameless = (0, 0)
        self._wide = count(1)

    def next_wide(self) -> str:
        """The ID of an order that a foreign producer announces."""
        return f"{WIDE}{next(self._wide)}"

    def note_foreign(self, name: str, *, certain: bool) -> None:
        """Record an entry of a foreign producer, as nameless if it does not name a possible order."""
        if name.startswith(WIDE):
            self.note_announced([name], certain=certain)
        else:
            accepted, perhaps = self.nameless
            self.nameless = (accepted + certain, perhaps + (not certain))

    def note_announced(self, names: Collection[str], *, certain: bool, replicated: bool = False) -> None:
        """Record an announcement, which was accepted, by a replica as well or not, or given up."""
        (self.accepted if certain else self.unconfirmed).update(names)
        self._history.note(
            "announcements", source=self._source, orders=list(names), accepted=certain, replicated=replicated
        )

    def expect(self, order_id: str, outcome: Expected) -> None:
        """Set the expected result of an unusual order."""
        self._special[order_id] = outcome
        self._history.note_document(self._source, order_id, outcome)

    async def expect_usual(self, order_id: str) -> None:
        """Expect the document of a usual order."""
        self._history.note_document(self._source, order_id, await self.expected(order_id))

    async def expected(self, order_id: str) -> Expected:
        """The expected result of an order."""
        if order_id in self._special:
            return self._special[order_id]
        return self._usual.response(ORDERS + order_id.encode()).payload.partition(b"\r\n\r\n")[2]


class Announcer:
    """The producer of one shop.

    Attributes:
        in_lists: whether workers request orders in lists.

    Args:
        redis_url: URL of Redis through the proxy.
        shop: the shop, in whose API orders are changed before they are announced.
        rate: orders per second.
        durability: of an accepted announcement.
        history: records documents and announcements.
        say: called with a description when an announcement is given up.
    """

    def __init__(
        self,
        redis_url: str,
        shop: Shop,
        rate: float,
        seed: int,
        durability: Durability,
        history: History,
        say: Callable[[str], None],
    ) -> None:
        self.orders = Orders(shop.name, shop.currency, history)
        self._url = redis_url
        self._shop = shop
        self._durability = durability
        self._per_tick = rate * _EVERY
        self._random = Random(f"{seed} orders {shop.name}".rstrip())
        self._say = say
        self._numbers = count(1)
        # Changed, and not announced since.
        self._owed: set[str] = set()
        self.in_lists = False

    async def run(self, stop: asyncio.Event) -> None:
        """Announce until stopped, including all changed orders."""
        layout = self._shop.layout
        opened = Producer.connect(self._url, layout.queue, partitions=layout.partitions, durability=self._durability)
        async with opened as producer:
            buffer = 0.0
            while not stop.is_set():
                tick = asyncio.create_task(asyncio.sleep(_EVERY))
                buffer += self._per_tick
                batch = [*self._owed, *[await self._next() for _ in range(int(buffer))]]
                buffer -= int(buffer)
                await self._announce(producer, batch)
                if self._random.random() < _NAMELESS:
                    await self._add_nameless()
                await tick
            while self._owed:
                await self._announce(producer, sorted(self._owed))

    async def _announce(self, producer: Producer, batch: list[str]) -> None:
        if not batch:
            return
        orders = self.orders
        try:
            async with asyncio.timeout(_GIVES_UP_AFTER):
                await producer.enqueue(batch)
        except TimeoutError:
            orders.note_announced(batch, certain=False)
            self._owed.update(name for name in batch if orders.versions.get(name, 0) > 1)
            self._say(f"an announcement of {len(batch)} orders was given up")
        else:
            orders.note_announced(batch, certain=True, replicated=self._durability == Durability.REPLICATED)
            self._owed.difference_update(batch)

    async def _add_nameless(self) -> None:
        """As a program with a mistake in it would, straight into the stream."""
        try:
            async with asyncio.timeout(_GIVES_UP_AFTER), control_client(self._url) as client:
                await client.xadd(self._random.choice(self._shop.partitions).stream, {"order": "536365"})
        except (RedisError, OSError, TimeoutError):
            self.orders.note_foreign("", certain=False)
        else:
            self.orders.note_foreign("", certain=True)

    # -- the next order -------------------------------------------------------------------------------------

    async def _next(self) -> str:
        (kind,) = self._random.choices(list(_SHARES), list(_SHARES.values()))
        name: str = await getattr(self, kind)()
        return name

    async def _plain(self) -> str:
        number = next(self._numbers)
        name = self.orders.bundled[number] if number < len(self.orders.bundled) else f"CHAOS-{number}"
        await self.orders.expect_usual(name)
        return name

    async def _missing(self) -> str:
        name = f"MISSING-{next(self._numbers)}"
        await self._shop.api.delete(name)
        self.orders.expect(name, DeadReason.NOT_FOUND)
        return name

    async def _broken(self) -> str:
        name = f"BROKEN-{next(self._numbers)}"
        # The result of an order with another order's name in a list depends on the other requested orders.
        document = self._random.choice(_BROKEN if self.in_lists else (*_BROKEN, _OTHER))
        await self._shop.api.put(name, document)
        self.orders.expect(name, DeadReason.INVALID_ORDER)
        return name

    async def _changing(self) -> str:
        """An order that will change. Its name determines whether its changes have a separate time."""
        name = f"{self._random.choice(['DATED', 'UNDATED'])}-{next(self._numbers)}"
        await self._put_version(name, 1)
        return name

    async def _change(self) -> str:
        """Another version of an order that was accepted before."""
        known = [name for name in self.orders.versions if name in self.orders.accepted]
        if not known:
            return await self._changing()
        name = self._random.choice(known[:_RESTLESS] if self._random.random() < 0.7 else known[-20:])
        await self._put_version(name, self.orders.versions[name] + 1)
        return name

    async def _put_version(self, name: str, version: int) -> None:
        document = _document(self._shop, name, version)
        self.orders.versions[name] = version
        self.orders.expect(name, document)
        await self._shop.api.put(name, document)


def _document(shop: Shop, name: str, version: int) -> bytes:
    placed = datetime(2026, 1, 1, tzinfo=UTC)
    return msgspec.json.encode(
        {
            "id": name,
            "status": f"version {version}",
            "placed_at": placed,
            "updated_at": placed + timedelta(minutes=version) if name.startswith("DATED") else None,
            "currency": shop.currency,
            "customer_id": shop.name or None,
            "country": "Norway",
            "lines": [{"sku": f"S{version}", "quantity": version, "unit_price": "0.10"}] * (version % 5),
        }
    )
