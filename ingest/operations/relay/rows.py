"""Enqueues rows of an outbox for one source, in row order."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain, groupby
from typing import Protocol

from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT, Announcement, InvalidAnnouncement
from ingest.domain.errors import QueueUnavailable, Unavailable
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.queue.produce.producer_errors import BacklogFull, IdempotencyKeyReused
from ingest.queue.produce.submission import OVERHEAD, Orders, most_in_a_step, parts_of
from ingest.store.outbox.outbox import OutboxRow

# Seconds for the steps of one transaction. PostgreSQL ends a transaction after a minute, and then all of it is enqueued again.
_LONGEST_ROUND = 10.0

RowOutcome = str | Unavailable | None
"""None: the row is queued. A text: why it is rejected. `Unavailable`: why it has to wait."""


class RelayTarget(Protocol):
    """Enqueues orders. See `Producer.try_enqueue`."""

    async def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        """Enqueue orders, or raise `Unavailable`."""


async def admit_all() -> None:
    """Accept all orders."""


class RowEnqueuer:
    """Enqueues the rows of one source.

    Args:
        target: the queue of the source.
        backlog_limit: limit of the target, or 0 if unlimited.
        admit: raises `Unavailable` while the source accepts no orders. Called before each step, because rows that wait for it separately
            would lose their order.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        target: RelayTarget,
        backlog_limit: int,
        admit: Callable[[], Awaitable[None]] = admit_all,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._admit = admit
        self._backlog_limit = backlog_limit
        self._clock = clock

    async def enqueue(self, rows: Sequence[OutboxRow]) -> list[tuple[OutboxRow, RowOutcome]]:
        """Enqueue the rows of both lanes concurrently, or one after the other if an order is in both.

        Of two documents of an order, the one accepted later counts as newer, so they must be accepted in row order.
        """
        main, express = ([row for row in rows if row.express is is_express] for is_express in (False, True))
        if {row.order_id for row in main}.isdisjoint({row.order_id for row in express}):
            return list(chain(*await asyncio.gather(self._enqueue_lane(main), self._enqueue_lane(express))))
        outcomes: list[tuple[OutboxRow, RowOutcome]] = []
        for _, part in groupby(rows, key=lambda row: row.express):
            outcomes += await self._enqueue_lane(list(part))
            if any(isinstance(outcome, Unavailable) for _, outcome in outcomes):
                break
        return outcomes

    async def _enqueue_lane(self, rows: Sequence[OutboxRow]) -> list[tuple[OutboxRow, RowOutcome]]:
        """Enqueue rows in their order, because a producer sends concurrent calls in the order of their arrival.

        It stops after a step in which a row had to wait, because a later step might find space again and overtake that row.
        """
        outcomes: list[tuple[OutboxRow, RowOutcome]] = []
        ends = self._clock() + _LONGEST_ROUND
        for step in self._steps(rows):
            found = await self._enqueue_step(step)
            outcomes += zip(step, found, strict=True)
            if self._clock() >= ends or any(isinstance(outcome, Unavailable) for outcome in found):
                break
        return outcomes

    async def _enqueue_step(self, step: Sequence[OutboxRow]) -> Sequence[RowOutcome]:
        try:
            await self._admit()
        except BacklogFull as error:
            return [error] * len(step)
        return await asyncio.gather(*map(self._enqueue_row, step))

    def _steps(self, rows: Sequence[OutboxRow]) -> Iterable[Sequence[OutboxRow]]:
        """Split rows into steps that are enqueued together. Without a backlog limit, all rows wait for one write to the disk."""
        if not self._backlog_limit:
            return [rows]
        return parts_of(rows, most_in_a_step(self._backlog_limit), lambda row: OVERHEAD + row.document_bytes)

    async def _enqueue_row(self, row: OutboxRow) -> RowOutcome:
        """Enqueue a row if possible."""
        if row.announcement is None:
            # With one key for all such rows, they would count as duplicates and be deleted.
            return "announcement is null: omit it, the column has a default"
        try:
            await self._target.try_enqueue(
                _order(row), idempotency_key=f"outbox:{row.announcement}", express=row.express
            )
        except (InvalidOrderId, InvalidAnnouncement) as error:
            return str(error)
        except IdempotencyKeyReused:
            return "the row was changed after it was queued: add a new row instead"
        except (BacklogFull, QueueUnavailable) as error:
            return error
        return None


def _order(row: OutboxRow) -> str | Announcement:
    if not row.document_bytes:
        return parse_order_id(row.order_id)
    if row.document is None:
        raise InvalidAnnouncement(
            f"the document is {row.document_bytes:,} bytes long, and the limit is {DOCUMENT_LIMIT:,}"
        )
    return Announcement(row.order_id, document=row.document)
