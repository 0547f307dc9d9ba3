"""Removes the dead letter of an order that was not found at first, and was stored later.

One process of the group does it for all, some seconds after the order was stored. A dead letter is removed by its own ID, after the row of
its order has been committed. If the process dies here, the next one finds the dead letter again.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from ingest.flow.availability import until_available
from ingest.flow.ports import Maintenance, StoredOrders
from ingest.flow.ticks import sleep_to_tick
from ingest.telemetry.logs import get_logger

_log = get_logger("late_orders")
_EVERY = 10.0


class LateOrders:
    """The dead letters `not_found` of one source.

    Args:
        leads: whether this process does the maintenance of the group.
    """

    def __init__(self, group: Maintenance, store: StoredOrders, leads: Callable[[], bool]) -> None:
        self._group = group
        self._store = store
        self._leads = leads

    async def run(self) -> None:
        """Settle until cancelled."""
        while True:
            await sleep_to_tick(_EVERY)
            if self._leads() and (
                settled := await until_available("redis", self._group.settle_not_found, self._stored)
            ):
                _log.info("dead_letters_settled", dead_letters=settled)

    def close(self) -> None:
        """See `FleetPart`. There is nothing to share."""

    async def _stored(self, dead: Mapping[str, datetime]) -> Collection[str]:
        return await until_available("postgres", self._store.stored_since, dead)
