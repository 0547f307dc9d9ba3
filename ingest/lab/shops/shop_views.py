"""The orders as the API of a simulated shop shows them, which may differ from `ShopState` by the modes of the shop."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

from ingest.lab.shops.list_page import ListPage
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_modes import ShopModes
from ingest.lab.shops.shop_state import ShopState


class BrokenPage(Exception):
    """A page contains the order that breaks it."""


class ShopViews:
    """Reads orders and lists.

    Args:
        state: the orders.
        modes: returns the current modes.
        number: returns the number of the order with an ID.
        random: selects the reads that go to the replica.
    """

    def __init__(
        self, state: ShopState, modes: Callable[[], ShopModes], number: Callable[[str], int | None], random: Random
    ) -> None:
        self._state, self._modes, self._number, self._random = state, modes, number, random
        self._cursors = 0

    def read(self, number: int | None) -> ShopOrder | None:
        """Return an order that exists."""
        return None if number is None else self._state.at(number, self._as_of())

    def fetch(self, number: int | None) -> ShopOrder | None:
        """Return an order that exists, and count the request."""
        order = self.read(number)
        if order is not None:
            self._state.fetches[order.number] += 1
        return order

    def all_orders(self) -> list[ShopOrder]:
        """Return all orders, including those that lists contain only later."""
        return self._state.all_orders(self._as_of())

    def listed(self, since: datetime | None, until: datetime | None = None) -> list[ShopOrder]:
        """Return the orders that are listed in a period, both ends inclusive, in the order of the index."""
        now, as_of = self._state.clock(), self._as_of()
        visible = (each for each in self._state.all_orders(as_of) if each.visible_at is None or each.visible_at <= now)
        lag = self._modes().index_lag
        indexed = (each if not lag else self._indexed(each, as_of or now, lag) for each in visible)
        found = [
            order
            for order in indexed
            if order is not None
            and (since is None or order.listed_at >= since)
            and (until is None or order.listed_at <= until)
        ]
        return sorted(found, key=lambda order: (order.listed_at, order.number))

    def size(self, wanted: int) -> int:
        """Return how many orders a page contains that is requested with a size."""
        return min(wanted, self._modes().page_cap or wanted)

    def page(self, found: Sequence[ShopOrder], start: int, size: int) -> ListPage[ShopOrder]:
        """Cut a page from a list.

        Args:
            found: the whole list.
            start: place of its first order.
            size: see `size`.

        Raises:
            BrokenPage: it contains the order that breaks it.
        """
        modes = self._modes()
        first = 0 if modes.repeats else start
        selected = found[first : first + size]
        if modes.breaking_id and self._number(modes.breaking_id) in {order.number for order in selected}:
            raise BrokenPage
        shown = [order for order in selected if not modes.left_out or order.number % modes.left_out]
        return ListPage(first, selected, shown, bool(modes.repeats and selected) or start + size < len(found))

    def new_cursor(self) -> str:
        """Return a text that makes a cursor differ from all others, if pages repeat."""
        self._cursors += self._modes().repeats
        return str(self._cursors or "")

    def _as_of(self) -> datetime | None:
        """Return the time whose state a read shows, or None for now."""
        modes = self._modes()
        if not modes.replica_lag or (modes.replica_share < 1 and self._random.random() >= modes.replica_share):
            return None
        return self._state.clock() - timedelta(seconds=modes.replica_lag)

    def _indexed(self, order: ShopOrder, as_of: datetime, lag: float) -> ShopOrder | None:
        """Return an order with the time of its entry in the index, or None without an entry."""
        entry = self._state.at(order.number, as_of - timedelta(seconds=lag))
        if entry is None or entry.updated_at == order.updated_at:
            return None if entry is None else order
        return replace(order, indexed_at=entry.updated_at)
