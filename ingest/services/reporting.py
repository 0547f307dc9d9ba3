"""Reports the rejected configurations of sources for one process, every few seconds while there are any, and when they change.

If the process dies here, its report expires.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.service_report import Rejection, ServiceReport, rejected_since
from ingest.queue.operate.service_reports import ServiceReports

_EVERY = 5.0
_LIFETIME = 20.0


class Reporting:
    """The reports of one process.

    Args:
        reports: of the deployment.
        command: the name of the command, such as `ingest worker`.
        name: of the process, unique in the deployment.
        rejected: by source.
    """

    def __init__(
        self, reports: ServiceReports, command: str, name: str, rejected: Mapping[str, Rejection] = MappingProxyType({})
    ) -> None:
        self._reports = reports
        self._by = f"{command} on {socket.gethostname()}"
        self._name = name
        self._rejected = rejected
        self._changed = asyncio.Event()
        self._is_written = False

    def reject(self, problems: Mapping[str, str]) -> None:
        """Replace the problems of the sources whose configuration is rejected now."""
        self._rejected = rejected_since(problems, self._rejected, time.time())
        self._changed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report while the block runs."""
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            self._changed.clear()
            # Parts that need Redis report that it is unavailable.
            with suppress(QueueUnavailable):
                await self._report()
            try:
                async with asyncio.timeout(_EVERY):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _report(self) -> None:
        if self._rejected:
            await self._reports.write(self._name, ServiceReport(self._by, time.time() + _LIFETIME, self._rejected))
            self._is_written = True
        elif self._is_written:
            await self._reports.remove(self._name)
            self._is_written = False
