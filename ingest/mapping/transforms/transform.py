"""Lets a user's own function change, split or skip each order between decoding and storing."""

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

# As in `ingest.flow.deliver.decoding`: checking large orders is done in a thread.
_LARGE = 1024 * 1024


class Decoder(Protocol):
    """What makes orders of documents: the port `Decode`."""

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """The orders in a document."""


class Runner(Protocol):
    """Calls the function: in the event loop, or in another process."""

    async def run(self, order: Order, body: bytes) -> list[Returned]:
        """What the function returns for an order.

        Raises:
            TransformFailed: if it fails.
        """


class InLoop:
    """Calls the function in the event loop, where it should take no longer than a millisecond.

    Args:
        function: the user's.
        timeout: seconds that an async function may take. Nothing can end a function that is not async.
    """

    def __init__(self, function: Function, timeout: float) -> None:
        self._function = function
        self._timeout = timeout

    async def run(self, order: Order, body: bytes) -> list[Returned]:
        """What the function returns for an order.

        Raises:
            TransformFailed: if it fails, or takes too long.
        """
        try:
            value = self._function(order, body)
            if inspect.isawaitable(value):
                value = await _in_own_task(value, self._timeout)
            return returned_orders(order, value)
        except (TransformFailed, KeyboardInterrupt):
            raise  # the latter is somebody at a terminal, who wants a command to end
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise TransformFailed(described(error, self._function)) from error
        except BaseException as error:  # also what extensions raise that is no `Exception`, such as panics of Rust
            raise TransformFailed(described(error, self._function)) from error


async def _in_own_task(value: Awaitable[Any], timeout: float) -> Any:  # noqa: ASYNC109  nobody waits for it beyond that
    """What an async function returns. It may cancel its own task, which must not be the delivery's, and ignore that it is cancelled.

    Raises:
        TransformFailed: it takes too long.
    """
    task = asyncio.create_task(_outcome(value))
    if inspect.iscoroutine(value):
        # A task that is cancelled before it begins has not awaited it.
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
    """What an async function returns, or raises, as a value: a task that raises `SystemExit` would end the event loop."""
    try:
        return await value, None
    except BaseException as error:  # noqa: BLE001  raised again by the caller
        return None, error


class Transform:
    """Keeps the port `Decode`: what another decoder finds in a document goes through the function.

    Args:
        decoder: makes orders of documents.
        runner: calls the function.
        seconds: how long the calls take.
    """

    def __init__(self, decoder: Decoder, runner: Runner, seconds: Histogram) -> None:
        self._decoder = decoder
        self._runner = runner
        self._seconds = seconds
        self._turn = asyncio.Lock()

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """The orders that the function makes of a document: none if it skips them all.

        Raises:
            InvalidDocument: if it is not a valid document of the order requested.
            TransformFailed: if the function fails.
        """
        orders: list[Order] = []
        for order in await self._decoder.decode(body, request):
            orders += await self._transformed(order, body)
        if len({order.id for order in orders}) < len(orders):
            raise TransformFailed("returned the same ID for two orders of the document")
        return tuple(orders)

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """Decode the document, without calling the function.

        Raises:
            InvalidDocument: if it is not a valid document of the order requested.
        """
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
