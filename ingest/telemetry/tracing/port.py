"""The port to a tracing library, implemented by `ingest.telemetry.tracing.otel`.

Spans are identified by their W3C trace context, as text. So it is the same in a queue entry, in a header, and between two parts of a
process. A part that gets no `Tracing` records nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from ingest.domain.trace_context import is_sampled

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Attributes = Mapping[str, str | int | float | bool]


class Span(Protocol):
    """One step of a trace. A span that does not end is not exported.

    Attributes:
        traceparent: its context, the parent of further spans.
    """

    traceparent: str

    def note(self, name: str, value: str | int) -> None:
        """Set an attribute."""

    def step(self, name: str, began_at: float, ended_at: float, error: str = "", link: str | None = None) -> None:
        """Add a span below it that has ended, with Unix times. Cheaper than a `Span`, because it has no context to pass on."""

    def end(self, error: str = "", at: float | None = None) -> None:
        """End it, with an error if it has failed, now or at a Unix time. The error must not contain customer data."""


class Tracing(Protocol):
    """Records spans."""

    def takes(self, order_id: str) -> bool:
        """Return whether to begin a trace for this order. It is the same in all processes with the same share."""

    def start(
        self,
        name: str,
        kind: Kind = "internal",
        parent: str | None = None,
        attributes: Attributes | None = None,
        links: Sequence[str] = (),
        at: float | None = None,
    ) -> Span:
        """Start a span.

        Args:
            name: of the step.
            kind: its side of a call.
            parent: a sampled context. None begins a trace.
            attributes: of the span.
            links: contexts of other traces.
            at: Unix time. None for now.
        """


# A context variable, because producers are constructed in many places, like `ingest.telemetry.activity`.
_current: ContextVar[Tracing | None] = ContextVar("tracing", default=None)


def current_tracing() -> Tracing | None:
    """Return the tracing of this process, for the parts that are constructed now. None without tracing."""
    return _current.get()


@contextmanager
def tracing_by(tracing: Tracing) -> Iterator[None]:
    """Trace by this in the block, and in the tasks that it starts."""
    token = _current.set(tracing)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def child_span(tracing: Tracing | None, name: str, parent: str | None) -> Iterator[Span | None]:
    """Record the block as a span, if its parent is sampled."""
    if tracing is None or parent is None or not is_sampled(parent):
        yield None
        return
    span = tracing.start(name, "internal", parent)
    try:
        yield span
    except BaseException as error:
        span.end(error_of(error))
        raise
    span.end()


def error_of(error: BaseException) -> str:
    """Return the text of an error for a span. Only its type, because a message may contain customer data."""
    return type(error).__name__
