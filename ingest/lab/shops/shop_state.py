"""All orders of a simulated shop, how they change, and how often each was fetched."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import ROUND_DOWN, Decimal
from random import Random
from typing import Literal

from ingest.lab.shops.making import OrderMaker
from ingest.lab.shops.orders import Refund, ShopOrder
from ingest.lab.shops.shop_history import ShopHistory
from ingest.lab.shops.shop_modes import ShopModes

Event = Literal["created", "updated", "deleted", "status"]
_NO_MODES = ShopModes()


class ShopState:
    """The orders by number.

    Args:
        maker: makes the orders.
        count: number of initial orders.
        random: selects orders and changes.
        clock: returns the current time of the web server, with time zone.
        modes: see `ShopModes`.

    Attributes:
        clock: see above.
        modes: the current ones, of which `time_step` and `database_behind` decide about the times of changes.
        fetches: requests for each order by its number.
        counts: other events by name, such as `list_requests`, `tokens` or `throttled`.
        on_event: called after each visible change, unless the change is quiet.
    """

    def __init__(
        self,
        maker: OrderMaker,
        count: int,
        random: Random,
        clock: Callable[[], datetime],
        modes: ShopModes = _NO_MODES,
    ) -> None:
        self._maker, self._random, self.clock, self.modes = maker, random, clock, modes
        self._orders = {order.number: order for order in maker.initial(count, self.now())}
        for order in self._orders.values():
            order.updated_at = self._cut(order.updated_at)
        self._history = ShopHistory()
        self._last = count
        self._refunds = 0
        self.fetches: Counter[int] = Counter()
        self.counts: Counter[str] = Counter()
        self.on_event: Callable[[Event, ShopOrder], None] = lambda _event, _order: None

    def now(self) -> datetime:
        """The current time of the database in whole seconds, as shops write it."""
        return self._cut(self.clock() - timedelta(seconds=self.modes.database_behind))

    def _cut(self, moment: datetime) -> datetime:
        return moment - timedelta(seconds=moment.timestamp() % self.modes.time_step)

    @property
    def last(self) -> int:
        """Number of the latest order."""
        return self._last

    def __len__(self) -> int:
        return len(self._orders)

    def get(self, number: int | None) -> ShopOrder | None:
        """Return an order that exists."""
        return None if number is None else self._orders.get(number)

    def at(self, number: int, moment: datetime | None) -> ShopOrder | None:
        """Return an order as it was at a time, or as it is now for None."""
        current = self._orders.get(number)
        return current if moment is None else self._history.at(number, moment, current)

    def all_orders(self, moment: datetime | None = None) -> list[ShopOrder]:
        """Return all orders as they were at a time, or as they are now for None, even if no list contains them yet."""
        if moment is None:
            return list(self._orders.values())
        numbers = {*self._orders, *self._history.numbers()}
        return [order for number in sorted(numbers) if (order := self.at(number, moment)) is not None]

    def listed(self, since: datetime | None, until: datetime | None = None) -> list[ShopOrder]:
        """Return the visible orders that changed in a period, both ends inclusive, from the oldest change."""
        now = self.clock()
        found = [
            order
            for order in self._orders.values()
            if (since is None or order.updated_at >= since)
            and (until is None or order.updated_at <= until)
            and (order.visible_at is None or order.visible_at <= now)
        ]
        return sorted(found, key=lambda order: (order.updated_at, order.number))

    def create(self, *, late: float = 0.0, quiet: bool = False) -> ShopOrder:
        """Add an order that is placed now."""
        self._last += 1
        order = self._maker.order(self._last, self.now())
        self._orders[order.number] = order
        self._history.note(order.number, None, self.clock())
        self._happened("created", order, late, quiet=quiet)
        return order

    def change(self, order: ShopOrder, *, late: float = 0.0, quiet: bool = False) -> None:
        """Change an order in one of the usual ways.

        Args:
            order: to change.
            late: seconds until lists contain the order again, with the time of the change.
            quiet: whether no webhook is sent.
        """
        self._history.note(order.number, order, self.clock())
        match self._random.randrange(4):
            case 0 if order.status != "cancelled":
                self._refund(order)
            case 1 if order.status == "pending":
                order.status = "cancelled"
            case _ if order.status == "pending":
                order.status = "paid"
            case _ if order.status == "paid":
                order.status = "shipped"
            case _:
                pass  # a note, which changes only the revision and the time
        order.revision += 1
        order.updated_at = max(self.now(), order.updated_at)
        self._happened("updated", order, late, quiet=quiet)

    def delete(self, order: ShopOrder, *, quiet: bool = False) -> None:
        """Remove an order."""
        del self._orders[order.number]
        self._history.note(order.number, order, self.clock())
        self._happened("deleted", order, 0.0, quiet=quiet)

    def random_orders(self, count: int) -> Sequence[ShopOrder]:
        """Draw different orders."""
        return self._random.sample(list(self._orders.values()), min(count, len(self._orders)))

    def shift(self, served: Sequence[ShopOrder]) -> None:
        """Change one order of a page that was just served, so that the rest of the list shifts."""
        self.change(self._random.choice(served), quiet=True)

    def _refund(self, order: ShopOrder) -> None:
        index = self._random.randrange(len(order.lines))
        line = order.lines[index]
        if any(refund.line == index for refund in order.refunds) or line.quantity < 1:
            return
        quantity = Decimal(self._random.randint(1, int(line.quantity.to_integral_value(ROUND_DOWN))))
        share = (line.subtotal - line.discount) * quantity / line.quantity
        self._refunds += 1
        amount = order.amount(share.quantize(Decimal("0.01")))
        order.refunds = (*order.refunds, Refund(self._refunds, index, quantity, amount, self.now()))

    def _happened(self, event: Event, order: ShopOrder, late: float, *, quiet: bool) -> None:
        order.visible_at = self.clock() + timedelta(seconds=late) if late else None
        self.counts[event] += 1
        if not quiet:
            self.on_event(event, order)
