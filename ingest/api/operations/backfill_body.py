"""The body of a request for a backfill."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from ingest.api.http.problems import Problem
from ingest.domain.operating.backfill import BackfillRequest, InvalidPeriod, period_of


class BackfillBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The period of a backfill, its rate, and whether it is a dry run.

    Attributes:
        since: Changed at this time or later.
        until: Changed at this time or earlier. The time of the request by default.
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
            until = None if self.until is None else _utc(self.until)
            return BackfillRequest(*period_of(_utc(self.since), until, now), self.rate, self.dry_run)
        except OverflowError:
            raise Problem(422, "invalid_body", "a time is out of range") from None
        except InvalidPeriod as error:
            raise Problem(422, "invalid_body", str(error)) from None


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
