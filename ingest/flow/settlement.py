"""Applies outcomes: the only room of the flow that stores, acks, reschedules and buries.

Rows are written by natural batching: while one batch commits, the next gathers; a lone order waits for nobody. The ack
follows the commit. If the process dies between the two, the entries come again and change nothing; in the other
order they would be lost.

A row that PostgreSQL refuses is to blame only if others are stored: refused before one was, and after it, while that one is taken
still. Else it may as well be the table, in which somebody has added a constraint. Until another row is stored, such rows are held and
tried again; when others need their room, they go to the retry set, a few at a time and uncounted.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import assert_never

from ingest.domain.delivery import DeadLetter, DeadReason, Delivery, OrderRow, Outcome, Retry, Store
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.lease import Leases
from ingest.flow.patience import until_available
from ingest.flow.ports import Queue
from ingest.flow.ports import Store as OrderStore
from ingest.flow.writing import Item, Refusal, Writer, Written
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_log = get_logger("settlement")

# With a backlog: a batch costs both sides as much as some twenty rows, and slots do not wait for it.
_GATHER = 0.015
# Between two looks whether the table takes what it has refused, with jitter.
_ROUND = (1.0, 2.0)
_LOG_EVERY = 10.0
# Refused rows that go to the retry set in each round while others need their room: a share of those that are held; and for how long.
_PUT_OFF_SHARE = 20
_PUT_OFF = (30.0, 60.0)


class Settlement:
    """Settles deliveries; `run` must be running while `settle` is called.

    Args:
        queue: where entries are finished and moved.
        store: where orders go.
        leases: whose entries are held until settled.
        metrics: outcomes, latencies, batches.
        room: what an order to store has taken before it comes here; given back when it is settled.
        now: wall clock in Unix seconds, for latencies.
    """

    def __init__(
        self,
        queue: Queue,
        store: OrderStore,
        leases: Leases,
        metrics: WorkerMetrics,
        buffer: BufferLimit,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._queue = queue
        self._leases = leases
        self._metrics = metrics
        self._buffer = buffer
        self._writer = Writer(store, leases, metrics, buffer.rows, now=now)
        self._gathered: list[Item] = []
        self._held: list[Item] = []
        self._again_at = 0.0
        self._told_at: float | None = None
        self._put_all_off = False
        self._wake = asyncio.Event()
        self._finishing = False
        self._gather_for = 0.0

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Apply an outcome. An order to store is taken over: it is stored and acked with its batch."""
        match outcome:
            case Store(order, fetched_at, size):
                row = OrderRow(order, fetched_at, delivery.attempt, delivery.enqueued_at)
                self._gathered.append(Item(delivery, row, size))
                self._wake.set()
            case Retry():
                await self._reschedule(delivery, outcome)
            case DeadLetter(reason, error):
                await self._dead_letter(delivery, reason, error)
            case _:
                assert_never(outcome)

    def finish(self) -> None:
        """Let `run` return once everything gathered is stored and acked, but for what is refused."""
        self._finishing = True
        self._wake.set()

    def expect_more(self, *, backlog: bool) -> None:
        """Tell whether a backlog waits: then a row may wait a moment for others, since it is the queue that counts."""
        self._gather_for = _GATHER if backlog else 0.0

    def put_refused_off(self) -> None:
        """Let go of the refused rows that are held, if there are any: an entry has to be alone."""
        if self._held:
            self._put_all_off = True
            self._wake.set()

    async def run(self) -> None:
        """Store and ack batches until `finish`. Cancelled, it drops what is not acked; that stays pending."""
        while not (self._finishing and not self._gathered):
            await self._woken()
            if self._gather_for and self._gathered and not self._finishing:
                await asyncio.sleep(self._gather_for)
            self._wake.clear()
            if self._gathered:
                await self._store(self._next_batch())
            if self._held:
                await self._see_to_held()
            self._note_the_end()

    # -- batches --------------------------------------------------------------------------------------------

    async def _woken(self) -> None:
        """Wait for something to do, or for the time to try again what is held."""
        if not self._held:
            await self._wake.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._again_at - time.monotonic()):
                await self._wake.wait()

    def _next_batch(self) -> list[Item]:
        count = self._writer.fitting(self._gathered)
        batch, self._gathered = self._gathered[:count], self._gathered[count:]
        if self._gathered:
            self._wake.set()
        return batch

    async def _store(self, batch: Sequence[Item]) -> None:
        written = await self._writer.write(batch)
        await self._finish_stored(written)
        if not written.refused:
            # Too slow together: the next batch is smaller.
            self._gathered[:0] = written.untried
            if written.untried:
                self._wake.set()
            if self._held and written.fresh is not None:
                await self._blame([], written.fresh)
            return
        suspects = await self._without_certain(written.refused)
        if written.fresh is not None:
            self._held += written.untried
            await self._blame(suspects, written.fresh)
        else:
            self._hold([*(refusal.item for refusal in suspects), *written.untried], written.refused[-1])

    async def _finish_stored(self, written: Written) -> None:
        """Ack what is stored, if it is still ours, and let go of what others have taken over."""
        await self._leases.confirm()
        ours = [item.delivery.entry for item in written.stored if self._leases.holds(item.delivery.entry)]
        if ours:
            await until_available("redis", self._queue.ack, ours)
            for entry in ours:
                self._leases.drop(entry)
        self._leave([*written.stored, *written.lost])

    def _leave(self, items: Iterable[Item]) -> None:
        for item in items:
            self._buffer.give_back(item.size)

    # -- what PostgreSQL refuses ----------------------------------------------------------------------------

    async def _without_certain(self, refused: Sequence[Refusal]) -> list[Refusal]:
        """Bury rows that no table could hold; return the others."""
        for refusal in refused:
            if refusal.error.is_certain:
                await self._dead_letter_row(refusal)
        return [refusal for refusal in refused if not refusal.error.is_certain]

    async def _blame(self, refused: Sequence[Refusal], fresh: Item) -> None:
        """Try refused rows once more, since another was stored, and bury those that are refused again."""
        again, self._held = [*(refusal.item for refusal in refused), *self._held], []
        if not again:
            return
        written = await self._writer.write(again, to_the_end=True)
        await self._finish_stored(written)
        self._held = written.untried
        if not written.refused:
            return
        # That the other is still taken shows that the table was right when these were refused.
        if await self._writer.takes(fresh):
            for refusal in written.refused:
                await self._dead_letter_row(refusal)
        else:
            self._hold([refusal.item for refusal in written.refused], written.refused[-1])

    async def _dead_letter_row(self, refusal: Refusal) -> None:
        await self._dead_letter(refusal.item.delivery, DeadReason.UNSTORABLE, str(refusal.error))
        self._leave([refusal.item])

    def _hold(self, items: Sequence[Item], why: Refusal) -> None:
        """Keep rows of which nobody knows yet whether they or the table are to blame."""
        now = time.monotonic()
        if not self._held:
            self._again_at = now + random.uniform(*_ROUND)  # noqa: S311  no secret
        self._held += items
        if self._held and (self._told_at is None or now - self._told_at >= _LOG_EVERY):
            self._told_at = now
            _log.error("rows_refused", held=len(self._held), order_id=why.item.delivery.order_id, error=str(why.error))

    async def _see_to_held(self) -> None:
        """Try held rows again when it is time, and put some off if others need their room."""
        if self._put_all_off:
            await self._put_off(len(self._held))
        elif time.monotonic() >= self._again_at:
            held, self._held = self._held, []
            # In another order each time: a search may be given up before it comes to one that could be stored.
            random.shuffle(held)
            await self._store(held)
            if self._buffer.is_wanted:
                await self._put_off(len(self._held) // _PUT_OFF_SHARE + 1)

    def _note_the_end(self) -> None:
        if self._held:
            return
        self._put_all_off = False
        if self._told_at is not None:
            self._told_at = None
            _log.info("no_rows_held")

    async def _put_off(self, count: int) -> None:
        """Move refused rows to the retry set, uncounted: one that could be stored may be behind them."""
        self._put_all_off = False
        leaving, self._held = self._held[:count], self._held[count:]
        for item in leaving:
            after = random.uniform(*_PUT_OFF)  # noqa: S311  no secret
            await until_available("redis", self._queue.reschedule, item.delivery, after, item.delivery.attempt)
            self._leases.drop(item.delivery.entry)
            self._leave([item])
        if leaving:
            self._metrics.orders["retried"].inc(len(leaving))
            _log.warning("refused_rows_put_off", rows=len(leaving), held=len(self._held))

    # -- single entries -------------------------------------------------------------------------------------

    async def _reschedule(self, delivery: Delivery, outcome: Retry) -> None:
        arguments = (delivery, outcome.after, outcome.attempt)
        moved = await until_available("redis", self._queue.reschedule, *arguments)
        self._leases.drop(delivery.entry)
        if moved:
            self._metrics.orders["retried"].inc()
            _log.warning("retry_scheduled", **_about(delivery), after=round(outcome.after, 3), error=outcome.error)

    async def _dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> None:
        moved = await until_available("redis", self._queue.dead_letter, delivery, reason, error)
        self._leases.drop(delivery.entry)
        if moved:
            self._metrics.orders["dead"].inc()
            _log.error("buried", **_about(delivery), reason=reason.value, error=error)


def _about(delivery: Delivery) -> dict[str, object]:
    return {"order_id": delivery.order_id, "entry_id": delivery.entry.id, "attempt": delivery.attempt}
