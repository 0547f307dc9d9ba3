"""What the flow needs of its neighbours; each contract is kept by one class in the room that it names.

Any method may raise `Unavailable`: the server is away or refuses us, and the same call may be made again.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from ingest.domain.delivery import (
    Abandoned,
    DeadReason,
    Delivery,
    Effect,
    EntryRef,
    Fetched,
    Heartbeat,
    OrderRow,
    Sweep,
)
from ingest.domain.outage import Outage


class Queue(Protocol):
    """A consumer of the group: `ingest.queue.consumer`. Moves are atomic, and done at most once."""

    async def read(self, count: int, block: float) -> list[Delivery]:
        """New entries, waiting for the first for `block` seconds."""

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Entries pending for this consumer that are not `known`; `counted` if this is another delivery of them."""

    async def claim_abandoned(self, count: int) -> Abandoned:
        """Entries that were released, or are held by consumers whose heartbeat has ended."""

    async def heartbeat(self, lifetime: float) -> Heartbeat:
        """Say that this consumer lives for `lifetime` seconds more."""

    async def report_outage(self, outage: Outage | None, lifetime: float) -> None:
        """Say for `lifetime` seconds why the external API is left in peace, or (None) that it is not."""

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """Finish entries. Only after the commit."""

    async def reschedule(self, delivery: Delivery, after: float, attempt: int) -> bool:
        """Move an entry to the retry set."""

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """Move an entry to the dead letters."""

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Renew leases; the entries that are lost."""

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """Release entries: claimable at once, and uncounted."""

    async def leave(self) -> int:
        """Take the consumer out of the group; how many entries it holds that it has not released."""


class GroupMaintenance(Protocol):
    """What one process does for the whole group: `ingest.queue.consumer`. Done by several at once, it does no harm."""

    async def sweep(self, idle: float) -> Sweep:
        """Release what nobody has renewed for `idle` seconds, and put back what was lost; one page."""

    async def move_due(self, most: int) -> int:
        """Move entries whose time has come from the retry set back into the stream."""

    async def trim(self, most: int) -> int:
        """Delete entries that every group has finished, where finishing could not."""

    async def remove_stale(self, idle: float) -> int:
        """Remove consumers without a heartbeat that hold nothing and were silent for `idle` seconds."""


class Upstream(Protocol):
    """The external API: `ingest.upstream.client`."""

    async def fetch(self, order_id: str) -> Fetched:
        """The order's document, after some quick tries; raises a `Fault` if it cannot be had."""

    async def fetch_once(self, order_id: str) -> Fetched:
        """The same, with a single request."""


class Store(Protocol):
    """The orders table: `ingest.store.orders`."""

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Store a batch, committed on return; raises `RowsRefused` if a row cannot be stored."""
