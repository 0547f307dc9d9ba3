"""Reports to the queue that this process's circuit is open, and why, for `ingest status`.

Reported when the circuit opens or closes, and regularly while it is open, so that the report of a process that dies expires. Nothing
waits for it: while Redis is unavailable, it is reported later.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ingest.domain.errors import Unavailable
from ingest.domain.fetch.outage import Outage
from ingest.domain.masking import mask_urls
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.ports import Liveness
from ingest.telemetry.logs import get_logger

_log = get_logger("circuit")
_AGAIN = 5.0
_LIFETIME = 3 * _AGAIN
# A library's error may quote a lot.
_LONGEST = 200


class OutageReport:
    """What the queue is told of this process's circuit.

    Args:
        queue: where it is reported.
        circuit: whose state is reported.
        now: Unix seconds by the queue's clock.
    """

    def __init__(self, queue: Liveness, circuit: CircuitBreaker, now: Callable[[], float]) -> None:
        self._queue = queue
        self._now = now
        self._breaker = circuit
        self._circuit: Outage | None = None
        self._changed = asyncio.Event()
        circuit.observe(self._note)

    def _note(self, error: str | None) -> None:
        """The circuit has opened for this error, or closed."""
        if error is None:
            self._circuit = None
        else:
            text = " ".join(mask_urls(error).split())
            shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
            self._circuit = Outage(self._now(), shown, self._breaker.is_unproven)
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled; at the start, that it is closed, whatever a predecessor of the same name has reported."""
        while True:
            self._changed.clear()
            is_told = await self._tell()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_told and self._circuit is None else _AGAIN):
                    await self._changed.wait()

    async def _tell(self) -> bool:
        try:
            await self._queue.report_outage(self._circuit, _LIFETIME)
        except Unavailable as error:
            _log.debug("circuit_not_reported", error=str(error))
            return False
        return True
