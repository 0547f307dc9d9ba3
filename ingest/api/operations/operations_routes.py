"""Routes that show the queue's state and consumers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from aiohttp import web
from msgspec import UNSET, UnsetType

from ingest.api.documentation.documentation import Documentation
from ingest.api.documentation.operations_documentation import paging
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.routing import Caller, Route
from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.operations.json_types import page_of
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.partition_monitor import ConsumerState

_LIMIT, _MOST = 100, 1000


@dataclass(frozen=True, slots=True)
class QueueReport(QueueState):
    """The state of a queue, and of its partitions if it has several."""

    partitions: Mapping[str, QueueState] | UnsetType = UNSET


_ConsumerPage = page_of("consumers", ConsumerState)
_QUEUE = Documentation(
    response="Depth, pending entries, retries, dead letters, and age of the oldest order, by lane. If the queue has several"
    " partitions, `partitions` contains the same for each.",
    schema=QueueReport,
)
_CONSUMERS = Documentation(
    text="The processes that read the queue, with their heartbeats and open circuits, by name.",
    parameters=paging(_MOST),
    schema=_ConsumerPage,
)


@dataclass(frozen=True, slots=True)
class QueueRoutes:
    """`GET /v1/queue` and `GET /v1/queue/consumers`.

    Attributes:
        monitor: Reads the queue's state.
    """

    monitor: Monitor

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/queue", "queue.show", self.state, _QUEUE),
            Route("GET", "/v1/queue/consumers", "queue.consumers", self.consumers, _CONSUMERS),
        ]

    async def state(self, request: web.Request, _: Caller) -> web.Response:
        """Depth, pending entries, retries, dead letters, and the age of the oldest order."""
        Parameters(request, ())
        partitions = await self.monitor.partitions()
        total = total_of(partitions.values())
        shown = dict(sorted(partitions.items())) if len(partitions) > 1 else UNSET
        state = {each.name: getattr(total, each.name) for each in fields(total)}
        return json_response(QueueReport(**state, partitions=shown))

    async def consumers(self, request: web.Request, _: Caller) -> web.Response:
        """The consumers of the group, by name."""
        given = Parameters(request, ("limit", "cursor"))
        limit, after = given.limit(_LIMIT, _MOST), given.cursor(str) or ""
        consumers = [each for each in await self.monitor.consumers() if each.name > after]
        next_cursor = cursor_of(consumers[limit - 1].name) if len(consumers) > limit else None
        return json_response(_ConsumerPage(consumers[:limit], next_cursor))
