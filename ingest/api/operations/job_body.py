"""The body of a request for a job."""

from typing import Annotated, Literal

import msgspec

from ingest.api.http.problems import Problem
from ingest.api.operations.selections import SelectionBody
from ingest.domain.orders.order import InvalidOrderId, parse_order_id
from ingest.domain.orders.order_filter import CRITERIA, OrderCriteria, OrderFilter


class OrdersBody(OrderCriteria, frozen=True, forbid_unknown_fields=True):
    """Stored orders that match all of these.

    Attributes:
        attributes: The attributes by name.
        everything: All stored orders. It is explicit, so that an empty selection never selects everything.
    """

    ids: Annotated[list[str], msgspec.Meta(max_length=1_000)] = msgspec.field(default_factory=list)
    attributes: dict[str, str] = msgspec.field(default_factory=dict)
    everything: bool = False

    def selection(self) -> OrderFilter:
        """Return the filter.

        Raises:
            Problem: 422 if it selects nothing or contradicts itself, or an ID is not valid.
        """
        try:
            ids = tuple(parse_order_id(each) for each in self.ids)
        except InvalidOrderId as error:
            raise Problem(422, "invalid_order_id", str(error)) from error
        criteria = {name: getattr(self, name) for name in CRITERIA}
        found = OrderFilter(**criteria, ids=ids, attributes=tuple(sorted(self.attributes.items())))
        if found.is_everything is not self.everything:
            raise Problem(422, "invalid_selection", "select orders by criteria, or all of them by everything")
        return found


class JobBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job on many dead letters, retries or stored orders.

    Attributes:
        kind: The change. `orders.enqueue` fetches orders again, and `orders.preview` shows which fields that would change.
        selection: The dead letters or retries. Those that are added later do not belong to the job.
        orders: The stored orders, for the kinds of orders.
        format: Of the exported file. The default is `jsonl`.
        rate: Limit of changes per second.
        sample: The most orders that a preview fetches, 20 by default.
    """

    kind: Literal[
        "dead_letters.replay",
        "dead_letters.drop",
        "dead_letters.export",
        "retries.run_now",
        "retries.dead_letter",
        "orders.enqueue",
        "orders.remap",
        "orders.preview",
    ]
    selection: SelectionBody | None = None
    orders: OrdersBody | None = None
    format: Literal["jsonl", "csv"] | None = None
    rate: Annotated[float, msgspec.Meta(ge=0.001, le=1_000_000)] | None = None
    sample: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None

    def entries(self) -> SelectionBody:
        """Return the selection of dead letters or retries.

        Raises:
            Problem: 422 without one, or with orders.
        """
        if self.selection is None or self.orders is not None:
            raise Problem(422, "invalid_selection", f"a job of the kind {self.kind} takes a selection, and no orders")
        return self.selection

    def stored_orders(self) -> OrderFilter:
        """Return the selection of stored orders.

        Raises:
            Problem: 422 without one, or with a selection of entries.
        """
        if self.orders is None or self.selection is not None:
            raise Problem(422, "invalid_selection", f"a job of the kind {self.kind} takes orders, and no selection")
        return self.orders.selection()
