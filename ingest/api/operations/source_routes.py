"""`GET /v1/sources` lists the sources with the state of their queues."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
from aiohttp import web

from ingest.api.documentation.documentation import Documentation
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters
from ingest.api.http.routing import Caller, Route
from ingest.operations.json_types import Count, response_of
from ingest.queue.operate.monitor import Monitor


class ShownSource(msgspec.Struct, frozen=True):
    """A source with the state of its queue."""

    name: str
    depth: Annotated[int | None, msgspec.Meta(description="Entries that no worker has been given.")]
    pending: Count
    retries: Count
    dead: Count
    oldest_age: Annotated[float | None, msgspec.Meta(description="Seconds since the oldest order was enqueued.")]


class SourceList(msgspec.Struct, frozen=True):
    """The sources that a key may use."""

    sources: list[ShownSource]


_SOURCES = Documentation(
    text="With the state of their queues, by name. Only the sources that the API key may use. Without a sources file, there is one "
    "source, whose name is empty. The routes of a source are below `/v1/sources/{source}/`, such as "
    "`/v1/sources/shop-de/orders` for `/v1/orders`. The only source has both.",
    schema=SourceList,
)


@dataclass(frozen=True, slots=True)
class SourceRoutes:
    """The route.

    Attributes:
        monitors: The monitors of the queue of each source, by the source's name.
    """

    monitors: Mapping[str, Monitor]

    def routes(self) -> Sequence[Route]:
        """The route."""
        return [Route("GET", "/v1/sources", "sources.list", self.page, _SOURCES)]

    async def page(self, request: web.Request, caller: Caller) -> web.Response:
        """The sources that the caller may use, by name."""
        Parameters(request, ())
        names = [name for name in sorted(self.monitors) if caller.may_use(name)]
        states = await asyncio.gather(*(self.monitors[name].state() for name in names))
        shown = [response_of(ShownSource, each, name=name) for name, each in zip(names, states, strict=True)]
        return json_response(SourceList(shown))
