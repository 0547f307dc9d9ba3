"""Idempotency-Key: a request that is sent again with its key gets the first one's answer, and does nothing.

As the IETF draft "The Idempotency-Key HTTP Header Field" (revision 07) describes it: 400 for a malformed key, 409 while the first
request is being worked on, 422 if the key was used for another payload. Keys are kept for 24 hours, for each caller on its own.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

from multidict import MultiMapping

from ingest.api.http.problems import Problem
from ingest.api.orders.queueing import busy, key_reused, problem_of
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.errors import QueueUnavailable
from ingest.queue.produce.idempotent_calls import Begun, Done, IdempotentCalls, Running
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
HEADER = "Idempotency-Key"
# A String of RFC 9651: printable ASCII in quotes. Many clients leave the quotes out.
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,200})"', re.ASCII)
# When to check for the response of a call in progress.
_SOON = 2.0
_BARE = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,200}", re.ASCII)

Work = Callable[[Begun], Awaitable[Accepted]]
"""Executes the request. `Begun.name` is its key for the producer."""


class Payload(Protocol):
    """The content of a request."""

    async def fingerprint(self) -> str:
        """Return the fingerprint of the payload, and read the rest of it."""


@dataclass(frozen=True, slots=True)
class WholeBody:
    """A payload that has been read whole.

    Attributes:
        body: all of it.
    """

    body: bytes

    async def fingerprint(self) -> str:
        """Of all its bytes."""
        return _digest(self.body)


def key_of(headers: MultiMapping[str]) -> str | None:
    """The idempotency key of a request, or None if it contains none.

    Raises:
        Problem: 400 if it is malformed.
    """
    given = headers.getall(HEADER, None)
    if given is None:
        return None
    text = given[0].strip(" \t") if len(given) == 1 else ""
    if match := _QUOTED.fullmatch(text):
        return re.sub(r"\\(.)", r"\1", match[1])
    if _BARE.fullmatch(text):
        return text
    raise Problem(
        400, "invalid_idempotency_key", "Idempotency-Key is one string of 1 to 200 printable characters, in quotes"
    )


class Idempotency:
    """Answers requests with a key.

    Args:
        calls: remembers them.
    """

    def __init__(self, calls: IdempotentCalls) -> None:
        self._calls = calls

    async def once(self, name: str, payload: Payload, work: Work) -> Accepted:
        """Do the work, or return its result if it was done before.

        Args:
            name: of the call: see `name_of`.
            payload: of the request.
            work: is done if no request with this key has been.

        Raises:
            Problem: 409, 422, or an error of the work.
        """
        match await self._begin(name):
            case Done(fingerprint=known, answer=answer):
                if known != await payload.fingerprint():
                    raise key_reused()
                return Accepted(*answer)
            case Running(seconds=seconds):
                detail = "the first request with this Idempotency-Key has not been answered yet"
                raise busy(409, "request_in_progress", detail, min(seconds, _SOON))
            case Begun() as call:
                return await self._run(call, payload, work)

    async def extend(self, call: Begun) -> None:
        """Tell that a call which takes long is still being worked on."""
        try:
            await self._calls.extend(call)
        except QueueUnavailable as error:
            _log.warning("unavailable", server="redis", error=str(error))

    async def _begin(self, name: str) -> Begun | Running | Done:
        try:
            return await self._calls.begin(name)
        except QueueUnavailable as error:
            raise problem_of(error) from error

    async def _run(self, call: Begun, payload: Payload, work: Work) -> Accepted:
        done: tuple[str, Accepted] | None = None
        try:
            accepted = await work(call)
            done = await payload.fingerprint(), accepted
            return accepted
        finally:
            # Without an answer the call ends, so that the next request with the key tries again immediately. If this cannot be
            # stored, the lease ends by itself, and the producer knows the orders by the same key.
            try:
                await self._end(call, done)
            except QueueUnavailable as error:
                _log.warning("unavailable", server="redis", error=str(error))

    async def _end(self, call: Begun, done: tuple[str, Accepted] | None) -> None:
        if done is None:
            await self._calls.forget(call)
        else:
            fingerprint, accepted = done
            await self._calls.end(call, fingerprint, (accepted.accepted, accepted.duplicates))


def name_of(caller: str, route: str, key: str) -> str:
    """The name under which a call is remembered: keys of different callers and routes have nothing to do with each other."""
    return _digest(caller.encode() + b"\0" + route.encode() + b"\0" + key.encode())


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
