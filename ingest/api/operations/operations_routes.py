"""Routes that show the queue's state, consumers and retries, and change the retries."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from ingest.api.documentation import entry_documentation
from ingest.api.documentation import operations_documentation as documentation
from ingest.api.http.failures import as_problems
from ingest.api.http.json_responses import as_object, json_response
from ingest.api.http.parameters import Parameters, cursor_of, invalid_cursor
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.selections import Changes, RetriesBody, entry_filter
from ingest.domain.api_key import Scope
from ingest.domain.deliveries.dead_letter import InvalidSelection
from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.source_name import UNNAMED
from ingest.operations.audit import Operation
from ingest.operations.failed_orders import retries as operations
from ingest.operations.failed_orders.group_surveys import GroupSurveys
from ingest.queue.operate.monitor import Monitor
from ingest.queue.operate.partition_retries import Position
from ingest.queue.operate.retries import Retries
from ingest.store.audit import AuditLog

_LIMIT, _MOST = 100, 500
_MOST_CONSUMERS = 1000
_LONGEST_NAME = 400


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
        limit, after = given.limit(_LIMIT, _MOST_CONSUMERS), given.cursor(str) or ""
        with as_problems():
            consumers = [each for each in await self.monitor.consumers() if each.name > after]
        next_cursor = cursor_of(consumers[limit - 1].name) if len(consumers) > limit else None
        return json_response({"consumers": [as_object(each) for each in consumers[:limit]], "next_cursor": next_cursor})


@dataclass(frozen=True, slots=True)
class RetryRoutes:
    """`GET /v1/retries` and the routes below it.

    Attributes:
        retries: The retries of the queue.
        audit_log: Records changes.
        limits: The limits of bodies.
        groups: The groups of all sources.
        source: The name of the source in the responses.
    """

    retries: Retries
    audit_log: AuditLog
    limits: BodyLimits
    groups: GroupSurveys
    source: str = UNNAMED

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/retries", Scope.READ, self.page, entry_documentation.RETRIES),
            Route("GET", "/v1/retries/groups", Scope.READ, self.grouped, entry_documentation.RETRY_GROUPS),
            Route("POST", "/v1/retries/run-now", Scope.OPERATE, self.run_now, entry_documentation.RUN_NOW),
            Route("POST", "/v1/retries/dead-letter", Scope.OPERATE, self.dead_letter, entry_documentation.DEAD_LETTER),
        ]

    async def page(self, request: web.Request, _: Caller) -> web.Response:
        """The next retries, the soonest first. A page may contain fewer matching retries, or none."""
        single = ("limit", "cursor", "since", "until", "text", "shape")
        given = Parameters(request, single, ("order_id", "reason", "attribute"))
        limit, after = given.limit(_LIMIT, _MOST), _position(given.cursor(tuple[str, str]))
        ids, reasons = given.texts("order_id"), given.texts("reason")
        since, until, chosen = given.time("since"), given.time("until"), entry_filter(given)
        everything = not (ids or reasons or since or until or chosen)
        try:
            selection = RetrySelection(ids, reasons, everything, since, until, chosen)
        except InvalidSelection as error:
            raise Problem(422, "invalid_parameter", str(error), parameter="until") from error
        with as_problems():
            page = await self.retries.page(after, limit, chosen.unlisted_fields)
        found = [operations.as_object(entry, self.source) for entry in page.entries if selection.matches(entry)]
        return json_response(
            {
                "retries": found,
                "next_cursor": None if page.next is None else cursor_of(page.next),
                "missing_partitions": [each.as_dict() for each in page.missing],
            }
        )

    async def grouped(self, request: web.Request, _: Caller) -> web.Response:
        """The retries by reason and error shape."""
        Parameters(request, ())
        with as_problems():
            return json_response((await self.groups.retries([self.source])).as_dict())

    async def run_now(self, request: web.Request, caller: Caller) -> web.Response:
        """Make the next attempt of the retries that match due now."""
        return await self._change(request, caller, "retries.run_now", self.retries.run_now)

    async def dead_letter(self, request: web.Request, caller: Caller) -> web.Response:
        """Move the retries that match to the dead letters."""
        move = partial(self.retries.dead_letter, actor=caller.name)
        return await self._change(request, caller, "retries.dead_letter", move)

    async def _change(
        self, request: web.Request, caller: Caller, action: str, change: Callable[..., Awaitable[int]]
    ) -> web.Response:
        async def apply(selection: RetrySelection, operation: Operation) -> Mapping[str, int]:
            def count(done: int) -> None:
                operation.count = done

            return {"count": await change(selection, on_progress=count)}

        changes = Changes(self.audit_log, self.limits, RetriesBody, self.retries.survey)
        return await changes.respond(request, caller, action, apply)


def _state_as_object(state: QueueState) -> dict[str, Any]:
    return as_object(state) | {"lanes": {lane.value: as_object(each) for lane, each in state.lanes.items()}}


def _position(cursor: tuple[str, str] | None) -> Position:
    if cursor is None:
        return Position()
    position = Position(*cursor)
    if not position.is_valid or len(position.name) > _LONGEST_NAME:
        raise invalid_cursor()
    return position
