"""The spans of enqueueing, and the contexts that the entries carry to the workers.

A call for one order continues the trace of its HTTP request. The orders of a call for several have a trace each, with a link to the
request, because a trace of thousands of orders is of no use. If the client has sent a context, all orders are part of its trace.
"""

from collections.abc import Sequence
from dataclasses import replace

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.trace_context import is_sampled
from ingest.telemetry.tracing.port import Span, Tracing
from ingest.telemetry.tracing.program import program_context
from ingest.telemetry.tracing.request_trace import current_request

Given = Sequence[str | Announcement]


class EnqueueTrace:
    """The orders of a call with their contexts, and the spans that end with the call."""

    def __init__(self, orders: Given, spans: Sequence[Span] = ()) -> None:
        self.orders = orders
        self._spans = spans

    def end(self, error: str = "") -> None:
        """The call has ended."""
        for span in self._spans:
            span.end(error)


def begin_enqueueing(tracing: Tracing | None, orders: Given, queue: str) -> EnqueueTrace | None:
    """Begin the spans of a call, or return None if none of its orders is traced.

    Args:
        tracing: of this process. None for a program that may trace itself.
        orders: of the call.
        queue: the name of the queue.
    """
    if tracing is None:
        context = program_context()
        return None if context is None else EnqueueTrace([_with(order, context) for order in orders])
    request = current_request.get()
    if request is not None and (parent := request.parent) is not None:
        if not is_sampled(parent):
            return EnqueueTrace([_with(order, parent) for order in orders])
        span = _start(tracing, orders, queue, request.begin())
        return EnqueueTrace([_with(order, span.traceparent) for order in orders], [span])
    if not any(_takes(tracing, order) for order in orders):
        return None
    if len(orders) == 1:
        span = _start(tracing, orders, queue, None if request is None else request.begin())
        return EnqueueTrace([_with(orders[0], span.traceparent)], [span])
    links = [] if request is None else [request.begin()]
    traced, spans = list(orders), []
    for place, order in enumerate(orders):
        if _takes(tracing, order):
            spans.append(span := _start(tracing, [order], queue, None, links))
            traced[place] = _with(order, span.traceparent)
    return EnqueueTrace(traced, spans)


def _takes(tracing: Tracing, order: str | Announcement) -> bool:
    if isinstance(order, str):
        return tracing.takes(order)
    return order.traceparent is None and tracing.takes(order.order_id)


def _with(order: str | Announcement, context: str) -> Announcement:
    """Return the order with this context, unless its producer has given it one."""
    if isinstance(order, str):
        return Announcement(order, traceparent=context)
    return order if order.traceparent is not None else replace(order, traceparent=context)


def _start(tracing: Tracing, orders: Given, queue: str, parent: str | None, links: Sequence[str] = ()) -> Span:
    attributes: dict[str, str | int] = {"messaging.system": "redis", "messaging.destination.name": queue}
    if len(orders) > 1:
        attributes["messaging.batch.message_count"] = len(orders)
        return tracing.start("enqueue", "producer", parent, attributes, links)
    order = orders[0]
    attributes["ingest.order_id"] = order if isinstance(order, str) else order.order_id
    if isinstance(order, Announcement) and order.origin is not None:
        attributes["ingest.origin"] = order.origin
    return tracing.start("enqueue", "producer", parent, attributes, links)
