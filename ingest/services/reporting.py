"""Reports the rejected configurations and the webhooks of sources for one process, every few seconds while there are any.

If the process dies here, its report expires.
"""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

import msgspec

from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.service_report import Rejection, ServiceReport, WebhookCounts, rejected_since
from ingest.queue.operate.service_reports import ServiceReports

_EVERY = 5.0
_LIFETIME = 20.0
_LAST_WAIT = 1.0


class Reporting:
    """The reports of one process.

    Attributes:
        webhooks: counts by source, which other parts change.

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
        self._written = b""
        self.webhooks: dict[str, WebhookCounts] = {}

    def reject(self, problems: Mapping[str, str]) -> None:
        """Replace the problems of the sources whose configuration is rejected now."""
        self._rejected = rejected_since(problems, self._rejected, time.time())
        self._changed.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Report while the block runs."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            # This process rejects nothing any more. Its last counts remain.
            self._rejected = {}
            with suppress(QueueUnavailable, TimeoutError):
                async with asyncio.timeout(_LAST_WAIT):
                    await self._report()

    async def _run(self) -> None:
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
        content = msgspec.json.encode((self._rejected, self.webhooks))
        if not self._rejected and content == self._written:
            return
        if self._rejected or self.webhooks:
            report = ServiceReport(self._by, time.time() + _LIFETIME, self._rejected, self.webhooks)
            for old in await self._reports.write(self._name, report):
                self._continue(old)
        elif self._written:
            await self._reports.remove(self._name)
        self._written = content

    def _continue(self, old: ServiceReport) -> None:
        """Keep when webhooks were accepted by a process that has ended."""
        for source, counts in old.webhooks.items():
            own = self.webhooks.setdefault(source, WebhookCounts())
            own.accepted_at = max(own.accepted_at or 0.0, counts.accepted_at or 0.0) or None
