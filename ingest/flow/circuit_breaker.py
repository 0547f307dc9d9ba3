"""Tells an outage of the external API from the fault of one order, and keeps quiet while the API is away.

A failure is judged only with evidence. If a request that began later has been answered, the API works, and the order is at
fault. Where nothing tells, evidence is made: an order that the API has had before is asked for again; if it comes, those that
failed are at fault themselves, and if it does not, the API is away. Until then the judgement waits, and the order keeps its
slot. (A process to which the API has given nothing yet has only counting: one order is at fault, several are an outage.)

While the circuit is open nothing is read, what is in hand is given back uncounted, and single requests are sent as probes, ever
more slowly; the first answer closes it. An API that only asks to wait is left the requests that it is busy with.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from ingest.domain.errors import CredentialFault, Fault, ThrottledFault, TransientFault
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Gauge

_log = get_logger("circuit")

# So many failures without an answer to anything later are in doubt at once, fewer after some time.
_MANY = 10
_DOUBT = 1.0
# Refusals with more time between them do not belong together.
_REFUSALS_APART = 10.0
_FIRST_PAUSE = 0.5
_PAUSE_GROWTH = 1.5
# What the API sees of one process during an outage is a request in so many seconds; its return is noticed as soon.
_LONGEST_PAUSE = 4.0
# As long as the API asks for, but a probe a minute is no burden to it.
_LONGEST_WAIT_AS_TOLD = 60.0


class ApiAway(Exception):
    """The external API is to blame, not the order: give the delivery back, uncounted."""


@dataclass(frozen=True, slots=True, eq=False)
class _Failure:
    """One failed request that waits to be judged."""

    order_id: str
    asked_at: float


class CircuitBreaker:
    """What this process knows of the external API's health.

    Attributes:
        is_open: whether the API is to be left in peace.
        is_throttled: whether that is because it asks to be.
        closed: set while the circuit is not open.
        on_open: called when it opens.
        on_change: called with the cause when it opens, with None when it closes.

    Args:
        ask: asks the API for an order with a single request; raises a `Fault`.
        gauge: 1 while open.
        concurrency: orders in flight, at most; with few, few failures are many.
        doubt: seconds for which a failure waits for evidence before evidence is made.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments.
    """

    def __init__(
        self,
        ask: Callable[[str], Awaitable[object]],
        gauge: Gauge,
        concurrency: int,
        *,
        doubt: float = _DOUBT,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._ask = ask
        self._gauge = gauge
        self._many = max(2, min(_MANY, concurrency))
        self._doubt = doubt
        self._clock = clock
        self._draw = draw
        self._given: str | None = None
        self._latest_asked = 0.0
        self._answered_at = 0.0
        self._failed: set[_Failure] = set()
        self._refused: dict[str, float] = {}
        self._is_asking = False
        self._told = 0.0
        self._pauses = 0
        self._opened_at = 0.0
        self._closed_at = 0.0
        self._news = asyncio.Event()
        self.closed = asyncio.Event()
        self.closed.set()
        self.is_open = False
        self.is_throttled = False
        self.on_open: Callable[[], None] = lambda: None
        self.on_change: Callable[[str | None], None] = lambda _: None

    @property
    def has_an_order_to_ask_for(self) -> bool:
        """Whether `probe` can be used."""
        return self._given is not None

    def gave(self, order_id: str, asked_at: float) -> None:
        """The API has given an order that was asked for at `asked_at`."""
        self._given = order_id
        self.answered(asked_at)

    def answered(self, asked_at: float) -> None:
        """The API has answered a request that began at `asked_at`, with whatever only its order is to blame for."""
        self._latest_asked = max(self._latest_asked, asked_at)
        self._answered_at = self._clock()
        if self._refused:
            self._refused.clear()
        if self.is_open:
            self._close()
        if self._failed:
            self._failed = {failure for failure in self._failed if failure.asked_at > asked_at}
            self._tell()

    async def judge(self, order_id: str, fault: Fault, asked_at: float) -> None:
        """Return if the order is to blame for a fault, or nobody is; that may take some seconds.

        Raises:
            ApiAway: if the API is.
        """
        if isinstance(fault, ThrottledFault):
            self._note_refusal(order_id, fault)
        elif not self.is_open and not self._has_just_answered_later(asked_at):
            await self._until_judged(_Failure(order_id, asked_at), fault)
        # What began during an outage fails for the outage's sake, however late.
        if self.is_open or asked_at < self._closed_at:
            raise ApiAway(str(fault))

    async def probe(self) -> None:
        """Ask for an order that the API has had before; an answer closes the circuit."""
        order_id = self._given
        if order_id is None:
            return
        asked_at = self._clock()
        try:
            await self._ask(order_id)
        except ThrottledFault as fault:
            self._told = _wait_as_told(fault)
        except (TransientFault, CredentialFault):
            return
        except Fault:
            self.answered(asked_at)
        else:
            self.answered(asked_at)

    def pause(self) -> float:
        """Seconds until the next probe: ever more, with jitter, and no less than the API has asked for."""
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * _PAUSE_GROWTH ** min(self._pauses, 30))
        self._pauses += 1
        told, self._told = self._told, 0.0
        return max(told, self._draw(0.75 * longest, longest))

    def _has_just_answered_later(self, asked_at: float) -> bool:
        """Whether a request that began no earlier was answered lately: what hung through the beginning of an outage fails long after."""
        return asked_at <= self._latest_asked and self._clock() <= self._answered_at + self._doubt

    async def _until_judged(self, failure: _Failure, fault: Fault) -> None:
        """Wait until the failure is no longer in question: acquitted, convicted with the API, or alone at fault."""
        self._failed.add(failure)
        doubtful_at = self._clock() + (self._doubt if len(self._failed) < self._many else 0.0)
        try:
            while failure in self._failed:
                left = doubtful_at - self._clock()
                if left <= 0 and not self._is_asking:
                    await self._make_sure(fault)
                    continue
                news = self._news
                with suppress(TimeoutError):
                    async with asyncio.timeout(left if left > 0 else None):
                        await news.wait()
        finally:
            self._failed.discard(failure)

    async def _make_sure(self, fault: Fault) -> None:
        """Make evidence; afterwards no failure from before is in question."""
        if self._given is None:
            self._count(fault)
            return
        self._is_asking = True
        asked_at = self._clock()
        try:
            await self._ask(self._given)
        except (TransientFault, CredentialFault, ThrottledFault) as failed:
            # Unless everything has been acquitted meanwhile.
            if self._failed:
                self._open(failed)
        except Fault:
            self.answered(asked_at)
        else:
            self.answered(asked_at)
        finally:
            self._is_asking = False
            self._tell()

    def _count(self, fault: Fault) -> None:
        is_unmistakable = isinstance(fault, CredentialFault) or (
            isinstance(fault, TransientFault) and not fault.reached
        )
        if is_unmistakable or len({failure.order_id for failure in self._failed}) > 1:
            self._open(fault)
        else:
            self._failed.clear()

    def _note_refusal(self, order_id: str, fault: ThrottledFault) -> None:
        """An API that refuses what is too much answers something else; one that refuses everything for a second is away."""
        if self.is_open:
            self._told = _wait_as_told(fault)
            return
        now = self._clock()
        if now > next(reversed(self._refused.values()), now) + _REFUSALS_APART:
            self._refused.clear()
        first = next(iter(self._refused.values()), now)
        self._refused.setdefault(order_id, now)
        if len(self._refused) >= self._many and now >= first + self._doubt:
            self._open(fault)

    def _close(self) -> None:
        self.is_open = False
        self.closed.set()
        self._gauge.set(0.0)
        self._closed_at = self._clock()
        _log.info("circuit_closed", seconds=round(self._closed_at - self._opened_at, 1))
        self.on_change(None)

    def _open(self, fault: Fault) -> None:
        self.is_open = True
        self.closed.clear()
        self._gauge.set(1.0)
        self._opened_at = self._clock()
        self._pauses = 0
        self.is_throttled = isinstance(fault, ThrottledFault)
        self._told = _wait_as_told(fault) if isinstance(fault, ThrottledFault) else 0.0
        # A wrong credential is put right by a person; the rest passes.
        log = _log.error if isinstance(fault, CredentialFault) else _log.warning
        log("circuit_opened", error=str(fault), orders=len(self._failed) or len(self._refused))
        self._failed.clear()
        self._refused.clear()
        self.on_open()
        self.on_change(str(fault))
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def _wait_as_told(fault: ThrottledFault) -> float:
    return min(fault.after or 0.0, _LONGEST_WAIT_AS_TOLD)
