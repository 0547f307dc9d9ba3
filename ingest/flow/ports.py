"""What the flow needs of the other packages; the class that keeps each contract is named with it.

Every method may raise `Unavailable`: the server cannot be used now, or refuses us, and the same call may be made again.
A move of an entry is one atomic step, and is made at most once, however often it is sent.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from ingest.domain.deliveries.delivery import (
    Abandoned,
    DeadReason,
    Delivery,
    Effect,
    EntryRef,
    Heartbeat,
    RetryReason,
    Sweep,
)
from ingest.domain.deliveries.result import Finished
from ingest.domain.fetch.exchange import Fetched, FetchRequest
from ingest.domain.fetch.outage import Outage
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import StorableOrder


class Reading(Protocol):
    """Where deliveries come from: `ingest.queue.consume.consumer`.

    Whatever is returned is pending under this consumer's name until it is settled. A reply that is lost leaves its entries
    pending, too: `claim_own` returns them.
    """

    async def read(self, count: int, block: float, *, claims: bool = True) -> list[Delivery]:
        """At most `count` new entries; waits for the first for `block` seconds.

        With `claims`, released entries may be among them; without, never.
        """

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Entries pending for this consumer that are not `known`; `counted` if this is another delivery of them."""

    async def claim_abandoned(self, count: int) -> Abandoned:
        """At most `count` entries that were released, or are held by consumers whose heartbeats have ended."""


class Settling(Protocol):
    """How a delivery ends: `ingest.queue.consume.consumer`.

    A move changes nothing, and says so, if another consumer has claimed the entry. An entry that has been lost with its pending
    record (a failover, FLUSHALL) is moved all the same, from what the delivery holds of it. The entry of an order that was erased
    is finished instead of moved.

    Attributes:
        keeps_results: whether other programs are told what has become of each order. Then entries are finished by
            `ack_with_results`, and each dead letter is told by itself.
    """

    keeps_results: bool

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """Finish entries that are still ours, after the commit; returns how many."""

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """As `ack`, and tell in the same step what has become of the orders of those that are still ours."""

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """Move an entry to the retry set, due `after` seconds from now; the reason and the error are kept for people."""

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """Move an entry to the dead letters."""

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """Release entries: claimable at once, and this delivery does not count; returns how many."""


class Liveness(Protocol):
    """How this process is known to be alive: `ingest.queue.consume.consumer`."""

    async def heartbeat(self, lifetime: float) -> Heartbeat:
        """Say that this consumer is alive for `lifetime` seconds more."""

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Renew the leases of entries; returns those that are no longer ours."""

    async def report_outage(self, circuit: Outage | None, lifetime: float) -> None:
        """Say for `lifetime` seconds why no requests are sent to the external API, or (None) that they are."""

    async def leave(self) -> int:
        """Remove this consumer from the group; returns how many entries it still holds."""


class Maintenance(Protocol):
    """What one process does for the whole group: `ingest.queue.consume.consumer`. Done by several at once, it does no harm."""

    async def sweep(self, idle: float) -> Sweep:
        """Release what nobody has renewed for `idle` seconds, and put back what was lost; one page."""

    async def move_due(self, most: int) -> int:
        """Move at most `most` entries whose time has come from the retry set back into a stream; returns how many."""

    async def trim(self, most: int) -> int:
        """Delete at most `most` entries that every group has finished; returns how many."""

    async def remove_stale(self, idle: float) -> int:
        """Remove consumers that hold nothing and had no heartbeat for `idle` seconds; returns how many."""


class FleetPauses(Protocol):
    """The pauses that the external API asks all processes for: `ingest.queue.consume.quota`."""

    async def pause(self, seconds: float) -> float:
        """Pause all processes for `seconds` (0: only ask); returns for how many seconds they pause."""


class FleetPart(Protocol):
    """A part of a worker that keeps something in common with other processes."""

    async def run(self) -> None:
        """Keep it until cancelled."""

    def close(self) -> None:
        """A stop was requested: no more requests should be sent."""


class Upstream(Protocol):
    """The external API: `ingest.upstream.client`.

    Calls are made concurrently, one for each order in flight. An implementation may fetch several orders with one HTTP
    request: each call returns or raises what became of its own order, with the `Exchange` that they share. A fault of the request
    as a whole says so (`Fault.is_shared`); a call for one of its orders again may limit how many travel with it.
    """

    async def fetch(self, request: FetchRequest) -> Fetched:
        """The order's document, after some quick tries.

        Raises:
            Fault: if it cannot be fetched.
        """

    async def fetch_once(self, request: FetchRequest) -> Fetched:
        """The same, with a single HTTP request."""


class Decode(Protocol):
    """From a document to orders: `ingest.flow.deliver.decoding`, and `ingest.mapping` for mappings and user code."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[StorableOrder, ...]:
        """The orders in a document: none, one or several.

        Raises:
            InvalidDocument: if it is not a valid document of the order requested.
            TransformFailed: if a user's own function failed for it.
        """

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """Whether it is a valid document of the order requested; no user code is called.

        Raises:
            InvalidDocument: if it is not.
        """


class Store(Protocol):
    """The orders table: `ingest.store.orders.order_store`."""

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Store rows, committed on return; returns what each did. All are stored or none, except those that a trigger suppresses.

        Raises:
            RowsRefused: if a row cannot be stored; then none is.
            StoreTooSlow: if fewer rows may be stored in time.
            StoreInterrupted: if the connection was lost meanwhile; if it is lost each time, fewer rows may be stored.
            StoreLocked: if somebody else has locked some of the rows, or the table; then none is stored.
        """

    async def upsert_unlocked(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """As `upsert`, without waiting for rows that somebody else has locked, or has inserted and not committed.

        Raises:
            StoreLocked: if there are such rows. That the table is locked is another `Unavailable`.
        """

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        """Those of the orders that are stored, and whose rows somebody else has locked; does not wait for them.

        A row that was inserted and not committed is not seen.

        Raises:
            StoreUnavailable: if it cannot be found out.
        """

    async def some_stored(self, count: int) -> list[str]:
        """IDs of up to `count` orders that are stored: the first and the last ones in the order of their IDs."""

    async def would_update(self, rows: Sequence[OrderRow]) -> bool:
        """Whether rows that are stored would be updated by a later fetch of the same; they are not.

        Raises:
            RowsRefused: if a row would be refused.
            StoreLocked: if somebody else has locked some of the rows, or the table.
        """
