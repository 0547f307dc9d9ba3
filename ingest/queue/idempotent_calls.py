"""Remembers calls by a key: what has been answered, and what is being worked on, in whichever process.

A call that is being worked on has a lease: if its process dies, the same call may be made again when the lease has expired.
"""

import secrets
from dataclasses import dataclass

from redis.asyncio import Redis

from ingest.queue.connection import all_translated
from ingest.queue.keys import Keys
from ingest.queue.scripts import load

# A call takes milliseconds, or the seconds that Redis is given to answer.
LEASE = 30.0
LIFETIME = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Begun:
    """The caller is the first: it is to do the work, and to call `end`.

    Attributes:
        name: of the call.
        token: tells this attempt from a later one.
    """

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class Running:
    """Somebody else works on the call.

    Attributes:
        seconds: after which it may be tried again.
    """

    seconds: float


@dataclass(frozen=True, slots=True)
class Done:
    """The call was made before.

    Attributes:
        fingerprint: of its payload.
        answer: that it got.
    """

    fingerprint: str
    answer: tuple[int, int]


@all_translated
class IdempotentCalls:
    """The calls of one queue.

    Args:
        client: a connection to Redis.
        queue: the queue's name.
        lease: seconds that a call may take, unless it is extended.
        lifetime: seconds for which an answer is kept.
    """

    def __init__(self, client: Redis, queue: str, *, lease: float = LEASE, lifetime: float = LIFETIME) -> None:
        self._prefix = f"{Keys.of(queue).records}call:"
        self._lease = round(lease * 1000)
        self._lifetime = round(lifetime * 1000)
        self._begin = load(client, "call_begin")
        self._end = load(client, "call_end")

    async def begin(self, name: str) -> Begun | Running | Done:
        """Begin a call, unless it was made before, or somebody works on it.

        Raises:
            QueueUnavailable: if Redis cannot be used right now.
        """
        token = secrets.token_hex(8)
        reply = await self._begin([self._prefix + name], [token, self._lease])
        match reply:
            case [b"begun"]:
                return Begun(name, token)
            case [b"running", left]:
                return Running(left / 1000)
            case [b"done", known, accepted, duplicates]:
                return Done(known.decode(), (int(accepted), int(duplicates)))
            case _:
                raise ValueError("not a reply of call_begin")

    async def extend(self, call: Begun) -> None:
        """Renew the lease of a call that takes long."""
        await self._end([self._prefix + call.name], [call.token, self._lease, ""])

    async def end(self, call: Begun, fingerprint: str, answer: tuple[int, int]) -> None:
        """End a call, and keep its answer."""
        record = f"done {fingerprint} {answer[0]} {answer[1]}"
        await self._end([self._prefix + call.name], [call.token, self._lifetime, record])

    async def forget(self, call: Begun) -> None:
        """End a call that has no answer: it may be made again."""
        await self._end([self._prefix + call.name], [call.token, 1, "ended"])
