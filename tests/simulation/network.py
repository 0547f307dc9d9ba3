"""The network between one process and the servers: each call takes time, and its request or its reply may be lost."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import msgspec
from fakes.virtual_time import now

from ingest.domain.errors import QueueUnavailable, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.flow.clock import SharedClock


class Network:
    """The network of one process.

    Attributes:
        is_cut: whether the process was killed, so that no further call leaves it.
        frozen_until: the end of a time in which neither requests nor replies arrive.

    Args:
        latency: the longest time of each way, in seconds.
        loss: the share of requests and of replies that are lost.
    """

    def __init__(self, random: Random, latency: float, loss: float) -> None:
        self._random = random
        self._latency = latency
        self._loss = loss
        self.is_cut = False
        self.frozen_until = 0.0

    def reach(self, port: Any) -> Any:
        """A port at the other end of the network. Its `lost` is the error of lost calls."""
        return _Remote(self, port)

    async def call(
        self, effect: Callable[[], Coroutine[Any, Any, Any]], lost: Callable[[], Any], *, ends_with_caller: bool = False
    ) -> Any:
        """Make a call.

        A request that was sent takes effect even if the process dies before the reply, as on a real server.

        Args:
            effect: the work of the server.
            lost: called for a lost request or reply. It returns the result of the call, or raises an error.
            ends_with_caller: whether the server notices that a connection was closed.
        """
        loop = asyncio.get_running_loop()
        reply: asyncio.Future[asyncio.Task[Any]] = loop.create_future()
        if self.is_cut or self._is_lost():
            self._travel(_set, reply, None)
            await reply
            return lost()
        working: asyncio.Task[Any] | None = None

        def arrive() -> None:
            nonlocal working
            if not (ends_with_caller and reply.cancelled()):
                working = loop.create_task(effect())
                working.add_done_callback(partial(self._travel, _set, reply))

        self._travel(arrive)
        try:
            done = await reply
        except asyncio.CancelledError:
            if ends_with_caller and working is not None:
                working.cancel()
            raise
        return lost() if self.is_cut or self._is_lost() else done.result()

    def _travel(self, arrive: Callable[..., None], *arguments: Any) -> None:
        """Call `arrive` after the time of one way."""
        loop = asyncio.get_running_loop()
        loop.call_later(self._latency * self._random.random(), self._arrive, arrive, *arguments)

    def _arrive(self, arrive: Callable[..., None], *arguments: Any) -> None:
        if self.frozen_until and self.frozen_until > now():
            asyncio.get_running_loop().call_at(self.frozen_until, self._arrive, arrive, *arguments)
        else:
            arrive(*arguments)

    def _is_lost(self) -> bool:
        return self._random.random() < self._loss


class Stamped:
    """An API whose documents have the times of their requests by the clock of the process, instead of the true times.

    Args:
        upstream: the API.
        clock: of the process.
    """

    def __init__(self, upstream: Any, clock: SharedClock) -> None:
        self._upstream = upstream
        self._clock = clock

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        """Send a request."""
        at = self._clock.utc()
        result = await self._upstream.fetch(request)
        return msgspec.structs.replace(result, requested_at=at) if isinstance(result, Fetched) else result

    fetch_once = fetch


class _Remote:
    """Passes each call of a port over the network."""

    def __init__(self, network: Network, port: Any) -> None:
        self._network = network
        self._port = port
        self._lost = partial(_lose, getattr(port, "lost", QueueUnavailable))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found
        call = partial(self._fetch if name in {"fetch", "fetch_once"} else self._call, found)
        setattr(self, name, call)
        return call

    async def _call(self, method: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any, **named: Any) -> Any:
        return await self._network.call(lambda: method(*arguments, **named), self._lost)

    async def _fetch(self, method: Callable[..., Coroutine[Any, Any, Any]], request: FetchRequest) -> Any:
        sent_at = now()
        failed = Failed(TransientFault("the connection was lost"), Exchange((request,), sent_at))
        result = await self._network.call(lambda: method(request), lambda: failed, ends_with_caller=True)
        if isinstance(result, Fetched):
            # A client notes the time before it sends a request.
            result = msgspec.structs.replace(result, requested_at=datetime.fromtimestamp(sent_at, UTC))
        return result


def _lose(error: type[Exception]) -> None:
    raise error("the connection was lost")


def _set(reply: "asyncio.Future[Any]", done: "asyncio.Task[Any] | None") -> None:
    if done is not None and not done.cancelled():
        done.exception()  # even if it is lost
    if not reply.done():
        reply.set_result(done)
