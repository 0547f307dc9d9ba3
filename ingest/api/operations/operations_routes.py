"""Routes that show the queue's state and consumers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ingest.api.documentation import operations_documentation as documentation
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import as_object, json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.routing import Caller, Route
from ingest.domain.api_key import Scope
from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.queue.operate.monitor import Monitor

_LIMIT, _MOST = 100, 1000


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
            Route("GET", "/v1/queue", Scope.READ, self.state, documentation.QUEUE),
            Route("GET", "/v1/queue/consumers", Scope.READ, self.consumers, documentation.CONSUMERS),
        ]

    async def state(self, request: web.Request, _: Caller) -> web.Response:
        """Depth, pending entries, retries, dead letters, and the age of the oldest order."""
        Parameters(request, ())
        with as_problems():
            partitions = await self.monitor.partitions()
        response = _state_as_object(total_of(partitions.values()))
        if len(partitions) > 1:
            response["partitions"] = {queue: _state_as_object(each) for queue, each in sorted(partitions.items())}
        return json_response(response)

    async def consumers(self, request: web.Request, _: Caller) -> web.Response:
        """The consumers of the group, by name."""
        given = Parameters(request, ("limit", "cursor"))
        limit, after = given.limit(_LIMIT, _MOST), given.cursor(str) or ""
        with as_problems():
            consumers = [each for each in await self.monitor.consumers() if each.name > after]
        next_cursor = cursor_of(consumers[limit - 1].name) if len(consumers) > limit else None
        return json_response({"consumers": [as_object(each) for each in consumers[:limit]], "next_cursor": next_cursor})


def _state_as_object(state: QueueState) -> dict[str, Any]:
    return as_object(state) | {"lanes": {lane.value: as_object(each) for lane, each in state.lanes.items()}}
