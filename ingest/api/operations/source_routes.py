"""`GET /v1/sources` lists the sources with the state of their queues."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ingest.api.documentation import operations_documentation as documentation
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters
from ingest.api.http.routing import Caller, Route
from ingest.domain.api_key import Scope
from ingest.queue.operate.monitor import Monitor


@dataclass(frozen=True, slots=True)
class SourceRoutes:
    """The route.

    Attributes:
        monitors: The monitors of the queue of each source, by the source's name.
    """

    monitors: Mapping[str, Monitor]

    def routes(self) -> Sequence[Route]:
        """The route."""
        return [Route("GET", "/v1/sources", Scope.READ, self.page, documentation.SOURCES)]

    async def page(self, request: web.Request, caller: Caller) -> web.Response:
        """The sources that the caller may use, by name."""
        Parameters(request, ())
        names = [name for name in sorted(self.monitors) if caller.may_use(name)]
        with as_problems():
            return json_response({"sources": await asyncio.gather(*(self._state(name) for name in names))})

    async def _state(self, name: str) -> dict[str, Any]:
        state = await self.monitors[name].state()
        return {
            "name": name,
            "depth": state.depth,
            "pending": state.pending,
            "retries": state.retries,
            "dead": state.dead,
            "oldest_age": state.oldest_age,
        }
