"""A request that is sent again with its Idempotency-Key gets the first response without a further effect.

As the IETF draft "The Idempotency-Key HTTP Header Field" (revision 07) describes it: 400 for a malformed key, 409 while the first
request is being worked on, 422 if the key was used for another payload. Keys are kept for 24 hours, separately for each caller.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b

from multidict import MultiMapping

from ingest.api.http.failures import as_problems, busy
from ingest.api.http.problems import Problem
from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.errors import QueueUnavailable
from ingest.queue.produce.idempotent_calls import Begun, Done, IdempotentCalls, Running
from ingest.queue.produce.producer_errors import IdempotencyKeyReused
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
HEADER = "Idempotency-Key"
# A String of RFC 9651 is printable ASCII in quotes. Many clients omit the quotes.
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,200})"', re.ASCII)
# When to check for the response of a call in progress.
_SOON = 2.0
_BARE = re.compile(r"[A-Za-z0-9._~:/+=@-]{1,200}", re.ASCII)

Work = Callable[[Begun], Awaitable[Accepted]]
"""Executes the request. `Begun.name` is its key for the producer."""
Fingerprint = Callable[[], Awaitable[str]]
"""Reads the rest of the payload, and returns its fingerprint."""


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


@dataclass(frozen=True, slots=True)
class Idempotency:
    """Answers requests with a key.

    Attributes:
        calls: Remembers them.
    """

    calls: IdempotentCalls

    async def once(self, name: str, fingerprint: Fingerprint, work: Work) -> Accepted:
        """Do the work, or return its result if it was done before.

        Args:
            name: The name of the call, see `name_of`.
            fingerprint: The fingerprint of the request's payload.
            work: Is done if no request with this key has been.

        Raises:
            Problem: 409, 422, or an error of the work.
        """
        with as_problems():
            begun = await self.calls.begin(name)
            if isinstance(begun, Done):
                if begun.fingerprint != await fingerprint():
                    raise IdempotencyKeyReused
                return Accepted(*begun.answer)
        if isinstance(begun, Running):
            detail = "the first request with this Idempotency-Key has not been answered yet"
            raise busy(409, "request_in_progress", detail, min(begun.seconds, _SOON))
        try:
            accepted = await work(begun)
            payload = await fingerprint()
        except BaseException:
            # The next request with the key tries again immediately.
            await _logged(self.calls.forget(begun))
            raise
        await _logged(self.calls.end(begun, payload, (accepted.accepted, accepted.duplicates)))
        return accepted

    async def extend(self, call: Begun) -> None:
        """Renew the lease of a call that takes long."""
        await _logged(self.calls.extend(call))


async def _logged(step: Awaitable[object]) -> None:
    """Store the state of a call if possible. Otherwise its lease ends, and the producer recognizes the orders by the same key."""
    try:
        await step
    except QueueUnavailable as error:
        _log.warning("unavailable", server="redis", error=str(error))


def name_of(caller: str, route: str, key: str) -> str:
    """The name under which a call is remembered. Keys of different callers and routes are independent."""
    return digest_of(caller.encode() + b"\0" + route.encode() + b"\0" + key.encode())


def digest_of(content: bytes) -> str:
    """The fingerprint of a payload, or of a name."""
    return blake2b(content, digest_size=16).hexdigest()
