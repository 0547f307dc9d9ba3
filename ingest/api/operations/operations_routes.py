"""Routes that show the sources, and the state and the consumers of a queue."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

from ingest.api.documentation.documentation import Documentation
from ingest.api.documentation.operations_documentation import paging
from ingest.api.http.json_responses import json_response
from ingest.api.http.parameters import Parameters, cursor_of
from ingest.api.http.routing import Caller, Route
from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.operations.json_types import Count, page_of, response_of
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
