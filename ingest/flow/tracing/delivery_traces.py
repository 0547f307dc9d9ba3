"""The traces of the deliveries that this process holds.

The span of a delivery lasts from when its entry could be read until it is settled. In the delivery, its context replaces the context
of the entry, so that requests, retries and dead letters continue the trace. If the process dies here, the span is not exported, and
the next delivery continues from the entry.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import structlog

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.entry_fields import TRACEPARENT
from ingest.domain.trace_context import is_sampled, log_fields_of
from ingest.flow.settle.rows import Item
from ingest.telemetry.tracing.port import Span, Tracing, error_of


class _Open(msgspec.Struct):
    """The trace of a delivery that is not settled."""

    delivery: Delivery
    span: Span
    outcome: str = ""
    error: str = ""


class DeliveryTraces:
    """The traces of one source in one process.

    Args:
        tracing: None to record nothing.
        source: its name.
        now: Unix seconds.
    """

    def __init__(
        self, tracing: Tracing | None = None, source: str = "", *, now: Callable[[], float] = time.time
    ) -> None:
        self._tracing = tracing
        self._source = source
        self._now = now
        self._open: dict[EntryRef, _Open] = {}

    def begin(self, delivery: Delivery) -> Delivery:
        """Return the delivery, with the context of its span if it is traced."""
        parent: str | None = None
        if TRACEPARENT in delivery.fields:
            parent = delivery.traceparent()
            if parent is None or not is_sampled(parent):
                return delivery
        elif self._tracing is None or delivery.order_id is None or not self._tracing.takes(delivery.order_id):
            return delivery
        return delivery if self._tracing is None else self._begin(self._tracing, delivery, parent)

    def _begin(self, tracing: Tracing, delivery: Delivery, parent: str | None) -> Delivery:
        entry, now = delivery.entry, self._now()
        attributes: dict[str, str | int] = {
            "messaging.destination.name": entry.stream,
            "messaging.message.id": entry.id,
            "ingest.order_id": delivery.order_id or "",
            "ingest.attempt": delivery.attempt,
        }
        if self._source:
            attributes["ingest.source"] = self._source
        if delivery.count > 1:
            attributes["ingest.deliveries"] = delivery.count
        # By the clock of Redis, which may be ahead.
        readable_at = min(now, delivery.added_at())
        span = tracing.start("deliver", "consumer", parent, attributes, at=readable_at)
        span.step("queue wait", readable_at, now)
        fields = {**delivery.fields, TRACEPARENT: span.traceparent.encode()}
        traced = msgspec.structs.replace(delivery, fields=fields)
        self._open[entry] = _Open(traced, span)
        return traced

    def bind_logs(self, delivery: Delivery) -> None:
        """Add the trace to the log lines of the running task, which processes this delivery only."""
        if self._open and (found := self._open.get(delivery.entry)) is not None:
            structlog.contextvars.bind_contextvars(**log_fields_of(found.span.traceparent))

    @contextmanager
    def settling(self, step: str, deliveries: Iterable[EntryRef]) -> Iterator[list[_Open]]:
        """Record the block as a step of these deliveries."""
        found = [opened for entry in deliveries if (opened := self._open.get(entry)) is not None] if self._open else []
        began_at = self._now() if found else 0.0
        try:
            yield found
        except BaseException as error:
            self._record(step, found, began_at, error_of(error))
            raise
        self._record(step, found, began_at)

    @contextmanager
    def storing(self, items: Sequence[Item], rows: int) -> Iterator[None]:
        """Record the block as the statement that stores these items: a separate span, and one in each trace, linked to each other."""
        found = [opened for item in items if (opened := self._open.get(item.delivery.entry))] if self._open else []
        if not found or self._tracing is None:
            yield
            return
        attributes: dict[str, str | int] = {"db.system.name": "postgresql", "ingest.rows": rows}
        links = [opened.span.traceparent for opened in found]
        batch, began_at = self._tracing.start("store batch", "client", None, attributes, links), self._now()
        try:
            yield
        except BaseException as error:
            batch.end(error_of(error))
            self._record("store", found, began_at, error_of(error), batch)
            raise
        batch.end()
        self._record("store", found, began_at, "", batch)

    def end(self, delivery: Delivery) -> None:
        """The delivery is settled, or lost to another process."""
        if not self._open:
            return
        found = self._open.get(delivery.entry)
        if found is None or found.delivery is not delivery:
            return
        del self._open[delivery.entry]
        found.span.note("ingest.outcome", found.outcome or "lost")
        found.span.end(found.error)

    def _record(
        self, step: str, found: Sequence[_Open], began_at: float, error: str = "", batch: Span | None = None
    ) -> None:
        link, ended_at = None if batch is None else batch.traceparent, self._now()
        for opened in found:
            opened.span.step(step, began_at, ended_at, error, link)
