"""The times that one reading of a list has shown, compared with the reading before. Pure.

The times in a list may come from a database whose clock is behind the clock of the shop's web server. The next reading therefore begins
at a time that the list has shown, and not at the time of the request. One order with a wrong time must not decide.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from heapq import nlargest

import msgspec

from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.operating.polling import PollTurn

# Orders may be seconds behind by a replica, by an index, or by clocks.
_TOLERATED = timedelta(seconds=20)


class ShownTimes(msgspec.Struct):
    """The newest times of one reading.

    Attributes:
        newest: the newest time, or None without one.
        until: the second newest, or None with fewer than two orders.
        count: number of orders.
    """

    newest: datetime | None = None
    until: datetime | None = None
    count: int = 0

    def add(self, orders: Sequence[ListedOrder], began_at: datetime) -> None:
        """Add the orders of a page. Times after the beginning of the reading prove nothing."""
        self.count += len(orders)
        shown = (order.updated_at for order in orders if order.updated_at is not None and order.updated_at <= began_at)
        times = nlargest(2, filter(None, (self.newest, self.until, *shown)))
        self.newest, self.until = (*times, None, None)[:2]


def behind(newest: datetime | None, turn: PollTurn, began_at: datetime) -> float:
    """Return the seconds by which the times in a list are behind the shop's clock.

    If the newest order is newer than any order of the reading before, it has changed after that reading. If its time is earlier
    nevertheless, the times are behind. Without such an order, the result of the reading before counts.

    Args:
        newest: time of the newest order.
        turn: with the results of the reading before.
        began_at: when this reading began.
    """
    if newest is None or turn.shown_until is None or newest <= (turn.newest or turn.shown_until):
        return turn.behind
    return (began_at - newest).total_seconds() if turn.position - newest > _TOLERATED else 0.0
