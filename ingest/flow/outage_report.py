"""Reports to the queue that the circuit of this process is open, and why, for `ingest status`.

It reports when the circuit opens or closes, and regularly while it is open, so that the report of a dead process expires. While Redis
is unavailable, the report is sent later.
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
# Characters of an error. Some libraries quote whole documents.
_LONGEST = 200


class OutageReport:
    """The reports of one process.

    Args:
        now: Unix seconds by the queue's clock.
    """

    def __init__(self, queue: Liveness, circuit: CircuitBreaker, now: Callable[[], float]) -> None:
        self._queue = queue
        self._now = now
        self._circuit = circuit
        self._outage: Outage | None = None

    async def run(self) -> None:
        """Report until cancelled. The first report replaces the one of a predecessor with the same name."""
        while True:
            self._outage = (self._outage or self._described()) if self._circuit.is_open else None
            is_reported = await self._send()
            changed = self._circuit.opened if self._outage is None else self._circuit.closed
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_reported and self._outage is None else _AGAIN):
                    await changed.wait()

    def _described(self) -> Outage:
        text = " ".join(mask_urls(self._circuit.error).split())
        shown = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
        return Outage(self._now(), shown, self._circuit.is_unproven)

    async def _send(self) -> bool:
        try:
            await self._queue.report_outage(self._outage, _LIFETIME)
        except Unavailable as error:
            _log.debug("circuit_not_reported", error=str(error))
            return False
        return True
