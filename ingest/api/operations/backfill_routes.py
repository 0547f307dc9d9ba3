"""Routes that start, list, show, cancel and resume backfills. Worker processes run them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from aiohttp import web

from ingest.api.documentation.documentation import Documentation, Parameter
from ingest.api.documentation.operations_documentation import paging
from ingest.api.http.json_responses import JSON, json_response
from ingest.api.http.problems import Problem, failure
from ingest.api.http.requests import BodyLimits, json_body
from ingest.api.http.routing import Caller, Route
from ingest.api.operations.job_routes import job_in, number, page_of
from ingest.api.operations.selections import in_utc
from ingest.domain.operating.backfill import BackfillRequest, InvalidPeriod
from ingest.domain.operating.jobs import Job, JobKind
from ingest.operations import jobs as operations
from ingest.operations.jobs.shown import BackfillList, ShownBackfill, shown_backfill
from ingest.store.jobs import Jobs

_KINDS = (JobKind.BACKFILL,)
_UNKNOWN = "backfill_not_found", "there is no backfill with this number"


class BackfillBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The period of a backfill, its rate, and whether it is a dry run.

    Attributes:
        since: Changed at this time or later.
        until: Changed at this time or earlier. Now by the shop's clock by default.
        rate: Limit of enqueued orders per second.
        dry_run: Whether to only count the orders.
    """

    since: datetime
    until: datetime | None = None
    rate: Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)] | None = None
    dry_run: bool = False

    def request(self, now: datetime) -> BackfillRequest:
        """The backfill, with times in UTC.

        Raises:
            Problem: 422 for an invalid period.
        """
        try:
            since, until = in_utc(self.since), in_utc(self.until)
            return BackfillRequest.within(since, until, now, rate=self.rate, dry_run=self.dry_run)
        except OverflowError:
            raise Problem(422, "invalid_body", "a time is out of range") from None
        except InvalidPeriod as error:
            raise Problem(422, "invalid_body", str(error)) from None


_ID = Parameter("backfill", "path", "The number of the backfill.", {"type": "integer", "minimum": 1}, is_required=True)

_PAGE = Documentation(text="The newest first.", parameters=paging(500), schema=BackfillList)
_START = Documentation(
    text="Reads the shop's list of a period, and enqueues the orders that are missing or outdated. See the page on polling and "
    "backfills. A worker process starts it within seconds. A dry run only counts these orders.",
    bodies={JSON: BackfillBody},
    status=202,
    response="The backfill waits for a worker process.",
    schema=ShownBackfill,
    problems={422: "The period or the rate is invalid."},
)
_SHOW = Documentation(text="With its progress.", parameters=[_ID], schema=ShownBackfill)
_CANCEL = Documentation(
    text="Orders that are already enqueued stay in the queue.",
    parameters=[_ID],
    response="The backfill is cancelled.",
    schema=ShownBackfill,
)
_RESUME = Documentation(
    text="Continues a cancelled or failed backfill or dry run from the page at which it has ended. A worker process starts it within "
    "seconds. A waiting backfill keeps waiting.",
    parameters=[_ID],
    status=202,
    response="The backfill waits for a worker process.",
    schema=ShownBackfill,
)


@dataclass(frozen=True, slots=True)
class BackfillRoutes:
    """`/v1/backfills` and the routes below it.

    Attributes:
        jobs: The jobs of the source.
        limits: The limits of bodies.
        has_list: Whether the list of the shop is configured.
    """

    jobs: Jobs
    limits: BodyLimits
    has_list: bool

    def routes(self) -> Sequence[Route]:
        """The routes."""
        return [
            Route("GET", "/v1/backfills", "backfills.list", self.page, _PAGE),
            Route("POST", "/v1/backfills", "backfills.start", self.start, _START),
            Route("GET", "/v1/backfills/{backfill}", "backfills.show", self.show, _SHOW),
            Route("DELETE", "/v1/backfills/{backfill}", "backfills.cancel", self.cancel, _CANCEL),
            Route("POST", "/v1/backfills/{backfill}/resume", "backfills.resume", self.resume, _RESUME),
        ]

    async def page(self, request: web.Request, _: Caller) -> web.Response:
        """The next backfills, the newest first."""
        found, next_cursor = await page_of(self.jobs, request, _KINDS)
        return json_response(BackfillList([shown_backfill(each) for each in found], next_cursor))

    async def start(self, request: web.Request, caller: Caller) -> web.Response:
        """Add a backfill that waits for a worker process."""
        body = await json_body(request, self.limits, BackfillBody)
        wanted = body.request(datetime.now(UTC))
        self._require_list()
        with _change_problems():
            added = await operations.start(self.jobs, wanted.as_job(), caller.name)
        return json_response(shown_backfill(added), 202)

    async def show(self, request: web.Request, _: Caller) -> web.Response:
        """One backfill with its progress."""
        return json_response(shown_backfill(await self._found(request)))

    async def cancel(self, request: web.Request, caller: Caller) -> web.Response:
        """Cancel an unfinished backfill."""
        found = await self._found(request)
        with _change_problems():
            cancelled = await operations.cancel(self.jobs, found, caller.name)
        return json_response(shown_backfill(cancelled))

    async def resume(self, request: web.Request, caller: Caller) -> web.Response:
        """Let a cancelled or failed backfill wait for a worker process again."""
        number(request, "backfill", _UNKNOWN)
        self._require_list()
        found = await self._found(request)
        with _change_problems():
            resumed = await operations.resume(self.jobs, found, caller.name)
        return json_response(shown_backfill(resumed), 202)

    async def _found(self, request: web.Request) -> Job:
        return await job_in(self.jobs, request, "backfill", _UNKNOWN, _KINDS)

    def _require_list(self) -> None:
        if not self.has_list:
            raise failure("no_list", "no list of orders is configured for this source")


@contextmanager
def _change_problems() -> Iterator[None]:
    try:
        yield
    except operations.UnfinishedBackfill as error:
        problem = f"the backfill {error.job} is unfinished"
        raise failure("unfinished_backfill", problem, id=error.job) from error
    except operations.ImpossibleChange as error:
        raise failure("backfill_ended", str(error)) from error
