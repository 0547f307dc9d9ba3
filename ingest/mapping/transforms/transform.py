"""Applies a user's function, which may change, split or skip each order between decoding and storing."""

import asyncio
import inspect
import time
from collections.abc import Awaitable
from typing import Any, Protocol

from ingest.domain.errors import TransformFailed
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import Order
from ingest.mapping.transforms.functions import Function, Returned, checked_order, described, returned_orders
from ingest.telemetry.shared_metrics import Histogram
from ingest.telemetry.tracing.port import Tracing, child_span

# Larger orders are checked in a thread, like in `ingest.flow.deliver.decoding`.
_LARGE = 1024 * 1024


class Decoder(Protocol):
    """Decodes documents to orders (the port `Decode`)."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """Return the orders in a document."""


class Runner(Protocol):
    """Calls the function in the event loop or in another process."""

    async def run(self, order: Order, body: bytes) -> list[Returned]:
        """Return the function's result for an order.

        Raises:
            TransformFailed: if it fails.
        """


class InLoop:
    """Calls the function in the event loop, where it should take at most a millisecond.

    Args:
        function: the user's function.
        timeout: seconds that an async function may take. Other functions cannot be interrupted.
    """

    def __init__(self, function: Function, timeout: float) -> None:
        self._function = function
        self._timeout = timeout

    async def run(self, order: Order, body: bytes) -> list[Returned]:
        """Return the function's result for an order, as `Runner` describes."""
        try:
            value = self._function(order, body)
            if inspect.isawaitable(value):
                value = await _in_own_task(value, self._timeout)
            return returned_orders(order, value)
        except (TransformFailed, KeyboardInterrupt):
            raise  # Ctrl-C ends a command
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise TransformFailed(described(error, self._function)) from error
        # Includes errors of extensions that do not derive from `Exception`, such as Rust panics.
        except BaseException as error:
            raise TransformFailed(described(error, self._function)) from error


async def _in_own_task(value: Awaitable[Any], timeout: float) -> Any:  # noqa: ASYNC109  the function may ignore cancellation
    """Return the result of an async function, run in a separate task because it may cancel its task.

    Raises:
        TransformFailed: it takes too long.
    """
    task = asyncio.create_task(_outcome(value))
    if inspect.iscoroutine(value):
        # A task that is cancelled before it starts does not await the coroutine.
        task.add_done_callback(lambda _: value.close())
    try:
        await asyncio.wait([task], timeout=timeout)
        if not task.done():
            raise TransformFailed(f"took longer than {timeout:g} s")
    finally:
        task.cancel()
    returned, error = task.result()
    if error is not None:
        raise error
    return returned


async def _outcome(value: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """Return the result or the error as a value, because a task that raises `SystemExit` would end the event loop."""
    try:
        return await value, None
    except BaseException as error:  # noqa: BLE001  raised again by the caller
        return None, error


class Transform:
    """Implements the port `Decode`, and passes the orders of another decoder to the function.

    Args:
        decoder: from a document to orders.
        runner: calls the function.
        seconds: duration of its calls.
        tracing: records them for orders that are traced, or None.
    """

    def __init__(self, decoder: Decoder, runner: Runner, seconds: Histogram, tracing: Tracing | None = None) -> None:
        self._decoder = decoder
        self._runner = runner
        self._seconds = seconds
        self._tracing = tracing
        self._turn = asyncio.Lock()

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """Return the function's orders for a document, possibly none.

        Raises:
            InvalidDocument: if it is not a valid document of the order requested.
            TransformFailed: if the function fails.
        """
        orders: list[Order] = []
        decoded = await self._decoder.decode(body, request)
        with child_span(self._tracing, "transform", request.traceparent):
            for order in decoded:
                orders += await self._transformed(order, body)
        if len({order.id for order in orders}) < len(orders):
            raise TransformFailed("returned the same ID for two orders of the document")
        return tuple(orders)

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """Decode the document as `decode` does, without calling the function."""
        await self._decoder.decode(body, request)

    async def _transformed(self, order: Order, body: bytes) -> list[Order]:
        started = time.monotonic()
        try:
            returned = await self._runner.run(order, body)
        finally:
            self._seconds.observe(time.monotonic() - started)
        if sum(len(each.body) for each in returned) < _LARGE:
            return _checked_orders(order, returned)
        async with self._turn:
            return await asyncio.to_thread(_checked_orders, order, returned)


def _checked_orders(order: Order, returned: list[Returned]) -> list[Order]:
    return [checked_order(order, each) for each in returned]
