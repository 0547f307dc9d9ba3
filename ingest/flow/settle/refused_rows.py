"""Decides whether a row that PostgreSQL rejects is at fault, or the table, and postpones locked rows.

A rejected row is at fault only if another row is stored. It was rejected before and after that, while the other row is still accepted.
Otherwise the table may be the cause, for example a new constraint. Until another row is stored, rejected rows are held and tried
again. When other orders need the buffer space, held rows go to the retry set, a few after each round and uncounted. Locked rows go there
immediately, because the transaction that has locked them may last for hours. Rows that need a table which another session has locked
are held like rejected ones, and tried again when one of them can be stored.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.deliveries.outcome import DeadLetter, Retry
from ingest.domain.errors import RowSuppressed, TableLocked
from ingest.flow.availability import AvailabilityLog
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.settle.acks import Acks
from ingest.flow.settle.locked_rows import Locks
from ingest.flow.settle.moves import Moves
from ingest.flow.settle.rows import Item, Refusal, Written
from ingest.flow.settle.writer import Writer
from ingest.telemetry.logs import get_logger

_log = get_logger("settlement")

# Seconds between two tries of held rows, with jitter.
_ROUND = (1.0, 2.0)
_LOG_EVERY = 10.0
# The share of held rows that is postponed in each round while others need their buffer space, and the seconds of the delay.
_POSTPONED_SHARE = 20
_UNKNOWN_LOCK = TableLocked("another session has locked a table")
_POSTPONED_FOR = (30.0, 60.0)


class RefusedRows:
    """The rows that PostgreSQL has rejected, and the rows that wait for a locked table.

    Attributes:
        locks: the locks on tables.
    """

    def __init__(
        self,
        writer: Writer,
        acks: Acks,
        moves: Moves,
        buffer: BufferLimit,
        *,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer = writer
        self._acks = acks
        self._moves = moves
        self._buffer = buffer
        self._draw = draw
        self._clock = clock
        self.locks = AvailabilityLog("postgres")
        self._held: list[Item] = []
        self._blocked: list[Item] = []
        self._retry_at = self._looked_at = 0.0
        self._logged_at: float | None = None
        self._isolated = 0

    def __bool__(self) -> bool:
        """Whether rows are held."""
        return bool(self._held or self._blocked)

    def due_in(self) -> float:
        """Seconds until the next try."""
        return 0.0 if self._isolated else self._retry_at - self._clock()

    @contextmanager
    def holding_none(self) -> Iterator[None]:
        """Postpone all rows while the block runs, because an entry has to be processed in isolation."""
        self._isolated += 1
        try:
            yield
        finally:
            self._isolated -= 1

    async def after(self, written: Written) -> list[Item]:
        """Classify the rejected rows of one write, and return the rows for the next batch, which were too slow together."""
        await self._leave_out(written)
        if not written.refused:
            if self._held and written.fresh is not None:
                await self._classify([], written.fresh)
            return written.untried
        suspects = await self._without_certain(written.refused)
        if written.fresh is not None:
            self._held += written.untried
            await self._classify(suspects, written.fresh)
        else:
            self._hold([*(refusal.item for refusal in suspects), *written.untried], written.refused[-1])
        return []

    async def retry(self) -> list[Item]:
        """Try held rows again if they are due, and postpone some if others need their buffer space, and return as `after`."""
        if self._isolated:
            await self._postpone(len(self._held))
            await self._postpone_blocked(len(self._blocked))
            return []
        if self._clock() < self._retry_at:
            return []
        if self._blocked and (again := await self._retry_blocked()):
            return again
        if not self._held:
            return []
        held, self._held = self._held, []
        # In a different order each time, because a search may end before it reaches a row that could be stored.
        random.shuffle(held)
        written = await self._writer.write(held)
        self._acks.add(written)
        again = await self.after(written)
        if self._buffer.is_wanted:
            await self._postpone(len(self._held) // _POSTPONED_SHARE + 1)
        return again

    def log_end(self) -> None:
        """Log once when the last held row is gone."""
        if not self._held and self._logged_at is not None:
            self._logged_at = None
            _log.info("no_rows_held")

    async def _without_certain(self, refused: Sequence[Refusal]) -> list[Refusal]:
        """Dead-letter rows that no table could store, and return the others."""
        for refusal in refused:
            if refusal.error.is_certain:
                await self._dead_letter(refusal)
        return [refusal for refusal in refused if not refusal.error.is_certain]

    async def _classify(self, refused: Sequence[Refusal], fresh: Item) -> None:
        """Try rejected rows once more after another row was stored, and dead-letter those that are rejected again."""
        again, self._held = [*(refusal.item for refusal in refused), *self._held], []
        if not again:
            return
        written = await self._writer.write(again, to_the_end=True)
        self._acks.add(written)
        self._held = written.untried
        await self._leave_out(written)
        if not written.refused:
            return
        # If the other row is still accepted, the rejected rows are at fault.
        held = []
        is_right = await self._writer.accepts(fresh)
        # This is no evidence about triggers that suppress rows, because a stored row is not missing.
        is_suppressing = (
            is_right and any(map(_is_suppressed, written.refused)) and not await self._writer.would_update(fresh)
        )
        for refusal in written.refused:
            if is_right and not (is_suppressing and _is_suppressed(refusal)):
                await self._dead_letter(refusal)
            else:
                held.append(refusal)
        if held:
            self._hold([refusal.item for refusal in held], held[-1])

    async def _dead_letter(self, refusal: Refusal) -> None:
        await self._moves.dead_letter(refusal.item.delivery, DeadLetter(DeadReason.UNSTORABLE, str(refusal.error)))
        self._acks.free([refusal.item])

    def _hold(self, items: Sequence[Item], why: Refusal) -> None:
        """Hold rows until it is known whether they or the table are at fault."""
        now = self._clock()
        if not self._held:
            self._retry_at = now + self._draw(*_ROUND)
        self._held += items
        if self._held and (self._logged_at is None or now - self._logged_at >= _LOG_EVERY):
            self._logged_at = now
            _log.error("rows_refused", held=len(self._held), order_id=why.item.delivery.order_id, error=str(why.error))

    async def _postpone(self, count: int) -> None:
        """Move rejected rows to the retry set, uncounted, because a row that can be stored may wait behind them."""
        postponed, self._held = self._held[:count], self._held[count:]
        for item in postponed:
            await self._move(item, RetryReason.ROW_REFUSED, "PostgreSQL refuses all rows")
        if postponed:
            _log.warning("refused_rows_postponed", rows=len(postponed), held=len(self._held))

    async def _leave_out(self, written: Written) -> None:
        """Postpone locked rows, and hold rows that need a locked table."""
        await self._postpone_locked(written.locked)
        if written.blocked:
            if not self:
                self._retry_at = self._clock() + self._draw(*_ROUND)
            self._blocked += written.blocked
            if written.blocker is not None or not self.locks.problem:
                self._looked_at = self._clock()
                self.locks.failed(written.blocker or _UNKNOWN_LOCK)

    async def _retry_blocked(self) -> list[Item]:
        """Try a row that needs a locked table. If it can be stored, return the others for the next batch."""
        now = self._clock()
        self._retry_at = now + self._draw(*_ROUND)
        # A statement that waits for the lock finds the session that holds it now. Meanwhile no other row is stored.
        locks = Locks.OF_TABLE if now < self._looked_at + _LOG_EVERY else Locks.NONE
        self._looked_at = self._looked_at if locks is Locks.OF_TABLE else now
        random.shuffle(self._blocked)
        sample, self._blocked = self._blocked[:1], self._blocked[1:]
        written = await self._writer.write(sample, locks)
        self._acks.add(written)
        if written.blocked:
            await self._leave_out(written)
            if self._buffer.is_wanted:
                await self._postpone_blocked(len(self._blocked) // _POSTPONED_SHARE + 1)
            return []
        self.locks.succeeded()
        again, self._blocked = self._blocked, []
        return [*await self.after(written), *again]

    async def _postpone_blocked(self, count: int) -> None:
        """Move rows that need a locked table to the retry set, uncounted."""
        postponed, self._blocked = self._blocked[:count], self._blocked[count:]
        for item in postponed:
            await self._move(item, RetryReason.ROW_LOCKED, self.locks.problem)
        if postponed:
            _log.warning("refused_rows_postponed", rows=len(postponed), held=len(self._blocked))
        if not self._blocked:
            self.locks.succeeded()

    async def _postpone_locked(self, locked: Sequence[Item]) -> None:
        for item in locked:
            _log.warning("locked_row_postponed", order_id=item.delivery.order_id, entry_id=item.delivery.entry.id)
            await self._move(item, RetryReason.ROW_LOCKED, "another transaction has locked the row")

    async def _move(self, item: Item, reason: RetryReason, error: str) -> None:
        """Move a row to the retry set, uncounted."""
        after, attempt = self._draw(*_POSTPONED_FOR), item.delivery.attempt
        await self._moves.reschedule(item.delivery, Retry(after, attempt, reason, error))
        self._acks.free([item])


def _is_suppressed(refusal: Refusal) -> bool:
    return isinstance(refusal.error, RowSuppressed)
