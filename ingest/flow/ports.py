"""The ports of the flow to the other packages, each with the class that implements it.

Every method may raise `Unavailable`, if the server is unavailable or denies access. The same call may then be repeated.
A move of an entry is one atomic step, and happens at most once, however often it is sent.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.dead_letter import StoredSince
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
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.operating.source_state import NO_REPORT, ProcessReport
from ingest.domain.orders.order_history import RecordedEvent
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import StorableOrder


class Reading(Protocol):
    """The source of deliveries, implemented by `ingest.queue.consume.consumer`.

    Every returned entry is pending under the name of this consumer until it is settled. The entries of a lost reply are pending as
    well, and `claim_own` returns them.
    """

    @property
    def may_own_more(self) -> bool:
        """Whether a reply was lost without an error of the call, because other partitions have responded."""

    async def read(self, count: int, block: float) -> list[Delivery]:
        """Read at most `count` new entries, waiting up to `block` seconds for the first."""

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Entries pending for this consumer that are not `known`. With `counted`, this is another delivery of them."""

    async def claim_abandoned(self, count: int) -> Abandoned:
        """At most `count` entries that were released, or are held by consumers whose heartbeats have ended."""


class Settling(Protocol):
    """The end of a delivery, implemented by `ingest.queue.consume.consumer`.

    A move returns False and changes nothing if another consumer has claimed the entry. An entry that was lost with its pending record (a
    failover, FLUSHALL) is moved from the copy in the delivery. The entry of an erased order is finished instead of moved.

    Attributes:
        keeps_results: whether results are written for other programs. If so, entries are finished by `ack_with_results`, and
            `dead_letter` writes the result of its order.
    """

    keeps_results: bool

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """Finish entries that this consumer still holds, after the commit, and return how many."""

    async def ack_with_results(self, finished: Sequence[Finished]) -> int:
        """As `ack`, and write the results of their orders in the same step."""

    async def reschedule(
        self, delivery: Delivery, after: float, attempt: int, reason: RetryReason | None = None, error: str = ""
    ) -> bool:
        """Move an entry to the retry set, due `after` seconds from now, with the reason and the error for operators."""

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """Move an entry to the dead letters."""

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """Release entries, which are immediately claimable, without counting this delivery, and return how many."""


class Liveness(Protocol):
    """The liveness of this process, implemented by `ingest.queue.consume.consumer`."""

    async def heartbeat(
        self, lifetime: float, clock: ClockBounds = unknown_time, report: ProcessReport = NO_REPORT
    ) -> Heartbeat:
        """Report that this consumer is alive, for the next `lifetime` seconds, with its report.

        The time that this process assumes keeps the queue's clock steady while the clock of the server is set.
        """

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Renew the leases of entries, and return those that another consumer has claimed."""

    async def leave(self) -> int:
        """Remove this consumer from the group, and return how many entries it still holds."""


class Maintenance(Protocol):
    """The maintenance of the group, implemented by `ingest.queue.consume.consumer`. Several processes may do it concurrently."""

    async def sweep(self, idle: float) -> Sweep:
        """Release entries that were not renewed for `idle` seconds, and restore lost ones, in one page."""

    async def move_due(self, most: int) -> int:
        """Move at most `most` due entries from the retry set into a stream, and return how many."""

    async def trim(self, most: int) -> int:
        """Delete at most `most` entries that every group has finished, and return how many."""

    async def remove_stale(self, idle: float) -> int:
        """Remove consumers without entries and without a heartbeat for `idle` seconds, and return how many."""

    async def settle_not_found(self, stored: StoredSince) -> int:
        """Remove dead letters `not_found` whose orders were stored later, among some of them, and return how many.

        `stored` is called with the time of the latest dead letter of each order. Repeated calls reach all dead letters.
        """


class FleetPauses(Protocol):
    """The pauses of all processes, implemented by `ingest.queue.consume.quota`."""

    async def pause(self, seconds: float) -> float:
        """Pause all processes for `seconds` (0: only check), and return for how many seconds they pause."""


class FleetPart(Protocol):
    """A part of a worker that shares state with other processes."""

    async def run(self) -> None:
        """Share the state until cancelled."""

    def close(self) -> None:
        """No more requests should be sent, because a stop was requested."""


class Upstream(Protocol):
    """The external API, implemented by `ingest.upstream.client`.

    Calls are made concurrently, one for each order in flight. An implementation may fetch several orders with one HTTP request. Each
    call then returns the result of the requested order, with the `Exchange` that they share. A failure of the whole request has
    `Failed.is_shared` set. A further call for one of its orders may limit how many orders share the next request.
    """

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """The order's document, after some quick tries."""

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        """The same, with a single HTTP request."""


class Decode(Protocol):
    """From a document to orders, implemented by `ingest.flow.deliver.decoding` and, for transforms, `ingest.mapping`."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[StorableOrder, ...]:
        """The orders in a document: none, one or several.

        Raises:
            InvalidDocument: if it is not a valid document of the order requested.
            TransformFailed: if the transform failed for it.
        """

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """Check that it is a valid document of the requested order, without calling the transform.

        Raises:
            InvalidDocument: if it is not.
        """


class History(Protocol):
    """The history of orders, implemented by `ingest.store.orders.history`. Several processes may use it concurrently."""

    async def add(self, events: Sequence[RecordedEvent]) -> None:
        """Record events, committed on return. After a lost reply they may be recorded twice.

        Raises:
            RowsRefused: if the table does not accept one of them.
        """

    async def delete_old(self, keep: float) -> bool:
        """Delete some events that are older than `keep` seconds, and return whether no others are left."""


class StoredOrders(Protocol):
    """Reads of the orders table, implemented by `ingest.store.orders.order_store`."""

    async def some_stored(self, count: int) -> list[str]:
        """Return the IDs of up to `count` stored orders, the first and the last ones in the order of their IDs."""

    async def stored_since(self, times: Mapping[str, datetime]) -> Collection[str]:
        """Of some orders with a time each, return the orders whose stored document was requested later."""


class Store(StoredOrders, Protocol):
    """The orders table, implemented by `ingest.store.orders.order_store`."""

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """Store rows, committed on return, and return the effect of each. All are stored or none, except those that a trigger suppresses.

        Raises:
            RowsRefused: if a row cannot be stored. Then none is.
            StoreTooSlow: if the statement took too long. Fewer rows may be stored in time.
            StoreInterrupted: if the connection was lost during the statement. If that repeats, try fewer rows.
            TableLocked: if another session has locked a table, as far as that is known. Then none is stored.
            StoreLocked: if another session has locked some of the rows, or a table. Then none is stored.
        """

    async def upsert_unlocked(self, rows: Sequence[OrderRow]) -> list[Effect]:
        """As `upsert`, without waiting for rows that another session has locked, or has inserted and not committed.

        Raises:
            StoreLocked: if there are such rows. A locked table raises `TableLocked`.
        """

    async def locked(self, order_ids: Collection[str]) -> set[str]:
        """Return the stored orders whose rows another session has locked, without waiting for them.

        A row that was inserted and not committed is not included.

        Raises:
            StoreUnavailable: if PostgreSQL is unavailable.
        """

    async def would_update(self, rows: Sequence[OrderRow]) -> bool:
        """Whether a later fetch of the same orders would update their rows, without updating them.

        Raises:
            RowsRefused: if a row would be refused.
            StoreLocked: if another session has locked some of the rows, or the table.
        """
