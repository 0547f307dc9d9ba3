"""Remembers calls by a key, with their responses, including calls in progress in any process.

A call in progress holds a lease. If its process dies, the same call may be made again when the lease has expired.
A process that has lost a reply of Redis recognises its own attempt by the token, and continues it.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.followed_layout import FollowedLayout
from ingest.queue.redis.connection import QueueFull, QueueRefused, translated, translating
from ingest.queue.redis.scripts import load

# A call takes milliseconds, or the seconds that Redis is given to answer.
LEASE = 30.0
LIFETIME = 24 * 3600.0
# A call that has failed after this many seconds is not sent again, because the caller waits.
_SOON = 1.0
# Calls that this process has left. Beyond that, the lease of the oldest has to expire.
_MOST_LEFT = 10_000


@dataclass(frozen=True, slots=True)
class Begun:
    """The caller is the first. It has to do the work and to call `end`.

    Attributes:
        name: The name of the call.
        token: Distinguishes this attempt from later ones.
        record: Key of its record.
    """

    name: str
    token: str
    record: str


@dataclass(frozen=True, slots=True)
class Running:
    """Another attempt works on the call.

    Attributes:
        seconds: The time after which it may be tried again.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The call was made before.

    Attributes:
        fingerprint: The fingerprint of its payload.
        answer: The response to the call.
    """

    fingerprint: str
    answer: tuple[int, int]


class IdempotentCalls:
    """The calls of one queue.

    A call may take `LEASE` seconds unless it is extended. Its answer is kept for `LIFETIME` seconds, in the partition to which
    its name belongs. After a change of the number of partitions, a repeated call may be made again.
    """

    def __init__(self, client: Redis, queue: str, *, partitions: int = 1) -> None:
        self._layout = FollowedLayout(client, queue, partitions)
        self._begin = load(client, "call_begin")
        self._end = load(client, "call_end")
        # The tokens of calls that ended without a reply of Redis, which may still count them as in progress.
        self._left: OrderedDict[str, str] = OrderedDict()

    @translating
    async def begin(self, name: str) -> Begun | Running | Done:
        """Begin a call, unless it was made before or is in progress.

        Raises:
            QueueUnavailable: If Redis cannot be used right now.
        """
        layout = await self._layout.current()
        record = f"{Keys.of(layout.queue_of_order(name)).records}call:{name}"
        token = self._left.pop(name, None) or secrets.token_hex(8)
        call = Begun(name, token, record)
        reply = await self._sent(call, self._begin, call.token, round(LEASE * 1000))
        match reply:
            case [b"begun"]:
                return call
            case [b"running", left]:
                return Running(left / 1000)
            case [b"done", known, accepted, duplicates]:
                return Done(known.decode(), (int(accepted), int(duplicates)))
            case _:
                raise ValueError("not a reply of call_begin")

    @translating
    async def extend(self, call: Begun) -> None:
        """Renew the lease of a call that takes long."""
        await self._end([call.record], [call.token, round(LEASE * 1000), ""])

    @translating
    async def end(self, call: Begun, fingerprint: str, answer: tuple[int, int]) -> None:
        """End a call, and keep its answer."""
        record = f"done {fingerprint} {answer[0]} {answer[1]}"
        await self._sent(call, self._end, call.token, round(LIFETIME * 1000), record)

    @translating
    async def forget(self, call: Begun) -> None:
        """End a call without a response, so that it may be made again."""
        await self._sent(call, self._end, call.token, 1, "ended")

    async def _sent(self, call: Begun, script: Callable[..., Awaitable[Any]], *arguments: str | int) -> Any:
        """The reply of a script. It is sent again if the connection is lost, which is safe if only the reply was lost.

        If it fails again, the next beginning of the call is this attempt's.
        """
        started = time.monotonic()
        try:
            try:
                return await self._send(call, script, arguments)
            except QueueUnavailable as error:
                if isinstance(error, QueueFull | QueueRefused) or time.monotonic() - started > _SOON:
                    raise
                return await self._send(call, script, arguments)
        except QueueUnavailable:
            self._leave(call)
            raise

    async def _send(self, call: Begun, script: Callable[..., Awaitable[Any]], arguments: Sequence[str | int]) -> Any:
        with translated():
            return await script([call.record], arguments)

    def _leave(self, call: Begun) -> None:
        self._left[call.name] = call.token
        if len(self._left) > _MOST_LEFT:
            self._left.popitem(last=False)
