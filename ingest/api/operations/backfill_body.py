"""The body of a request for a backfill."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec

from ingest.api.http.problems import Problem
from ingest.domain.backfill import BackfillRequest


class BackfillBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The period of a backfill, and its rate.

    Attributes:
        since: changed at this time or later.
        until: changed at this time or earlier. The time of the request by default.
        rate: limit of enqueued orders per second.
    """

    since: datetime
    until: datetime | None = None
    rate: Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)] | None = None

    def request(self, now: datetime) -> BackfillRequest:
        """The backfill, with times in UTC.

        Raises:
            Problem: 422 for an invalid period.
        """
        try:
            since, until = _utc(self.since), _utc(self.until or now)
        except OverflowError:
            raise Problem(422, "invalid_body", "a time is out of range") from None
        if since >= until:
            raise Problem(422, "invalid_body", "since must be earlier than until")
        return BackfillRequest(since, until, self.rate)


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
