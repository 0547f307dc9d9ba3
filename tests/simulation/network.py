"""The network between one process and the servers: each call takes time, and its request or its reply may be lost."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any

import msgspec
from fakes.virtual_time import now

from ingest.domain.errors import QueueUnavailable, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched


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
        """A port at the other end of the network."""
        return _Remote(self, port)

    async def call(
        self, effect: Callable[[], Awaitable[Any]], lost: Callable[[], Any], *, ends_with_caller: bool = False
    ) -> Any:
        """Make a call.

        A request that was sent takes effect even if the process dies before the reply, as on a real server.

        Args:
            effect: the work of the server.
            lost: called for a lost request or reply. It returns the result of the call, or raises an error.
            ends_with_caller: whether the server notices that a connection was closed.
        """
        if self.is_cut or self._is_lost():
            await self._travel()
            return lost()
        working = asyncio.ensure_future(self._arrive(effect))
        working.add_done_callback(_retrieve)
        result = await (working if ends_with_caller else asyncio.shield(working))
        await self._travel()
        return lost() if self.is_cut or self._is_lost() else result

    async def _arrive(self, effect: Callable[[], Awaitable[Any]]) -> Any:
        await self._travel()
        return await effect()

    async def _travel(self) -> None:
        if self._latency:
            await asyncio.sleep(self._random.uniform(0, self._latency))
        if (frozen := self.frozen_until - now()) > 0:
            await asyncio.sleep(frozen)

    def _is_lost(self) -> bool:
        return self._random.random() < self._loss


class _Remote:
    """Passes each call of a port over the network."""

    def __init__(self, network: Network, port: Any) -> None:
        self._network = network
        self._port = port

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if not inspect.iscoroutinefunction(found):
            return found
        call = partial(self._fetch if name in {"fetch", "fetch_once"} else self._call, found)
        setattr(self, name, call)
        return call

    async def _call(self, method: Callable[..., Awaitable[Any]], *arguments: Any, **named: Any) -> Any:
        return await self._network.call(lambda: method(*arguments, **named), _lose)

    async def _fetch(self, method: Callable[..., Awaitable[Any]], request: FetchRequest) -> Any:
        sent_at = now()
        failed = Failed(TransientFault("the connection was lost"), Exchange((request,), sent_at))
        result = await self._network.call(lambda: method(request), lambda: failed, ends_with_caller=True)
        if isinstance(result, Fetched):
            # A client notes the time before it sends a request.
            result = msgspec.structs.replace(result, requested_at=datetime.fromtimestamp(sent_at, UTC))
        return result


def _lose() -> None:
    raise QueueUnavailable("the connection was lost")


def _retrieve(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
