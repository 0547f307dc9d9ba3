"""How exact the times in a shop's list are, and how its clock relates to ours. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from ingest.domain.fetch.listed import SECOND, ListedOrder

# The database of a shop may be a moment behind its web server.
_MARGIN = 2 * SECOND
# The header `Date` has whole seconds, and clocks are compared by a request that takes a moment. Two comparisons differ by less than this.
_DIFFERENCE = 2 * SECOND
# A fetch that begins this long after the margin counts as later by each comparison, so that it is not repeated.
_UNCERTAIN = _DIFFERENCE + 3 * SECOND
REPEATED_AFTER = _MARGIN + _UNCERTAIN
"""How long after the end of its unit of time an order is fetched once more."""
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_UNITS = (_DAY, _HOUR, timedelta(minutes=1), SECOND)
# How often an order is requested again within a long unit of time.
_TIMES_PER_UNIT = 24


class ListClock(msgspec.Struct, frozen=True):
    """The clock of a list when a page was sent.

    Attributes:
        now: the time by the shop's clock.
        ahead: how far our clock is ahead of it.
        unit: how exactly the list writes times, as far as its description shows.
        late: how far the times in the list are behind the shop's clock.
    """

    now: datetime
    ahead: timedelta = timedelta()
    unit: timedelta = SECOND
    late: timedelta = timedelta()

    def unit_of(self, moment: datetime) -> timedelta:
        """Return the unit of time within which a later change would have the same time. Zero for an exact time."""
        since_midnight = timedelta(
            hours=moment.hour, minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond
        )
        unit = next((unit for unit in _UNITS if not since_midnight % unit), timedelta())
        return max(unit, self.unit) if unit >= _HOUR else unit

    def final_from(self, moment: datetime) -> datetime:
        """Return when no further change can have this time, by the shop's clock."""
        unit = self.unit_of(moment)
        return moment + unit + _MARGIN + self.late if unit else moment

    def again_before(self, moment: datetime) -> datetime | None:
        """Return the time before which the fetch of an order with this time must have begun to be repeated now, or None for no time.

        An order with a time of whole seconds may change once more within that second. It is fetched again after its end. A time of whole
        minutes, hours or days may be exact to the second, or not. It is fetched again after both, and in an hour or a day also in between.
        """
        final, unit = self.final_from(moment), self.unit_of(moment)
        if not unit:
            return None
        ended = [end for end in (moment + SECOND + _MARGIN + self.late, final) if self.now >= end + _UNCERTAIN]
        # What another comparison counts as fetched before the end, for example in a reconciliation, is fetched again.
        again = [end + _DIFFERENCE for end in ended]
        if unit >= _HOUR and final not in ended:
            again.append(self.now - unit / _TIMES_PER_UNIT)
        return max(again, default=None)

    def may_have_changed(self, moment: datetime, version: datetime, fetched_at: datetime) -> bool:
        """Whether an order may have changed without another time after its version was fetched, by our clock."""
        return moment <= version < moment + self.unit_of(moment) and fetched_at - self.ahead < self.final_from(moment)


def times_of(orders: Sequence[ListedOrder], clock: ListClock) -> tuple[list[datetime | None], ...]:
    """Return the times of orders, the ends of their units of time, and `again_before` of each."""
    times = [order.updated_at for order in orders]
    ends = [None if at is None else at + clock.unit_of(at) for at in times]
    return times, ends, [None if at is None else clock.again_before(at) for at in times]
