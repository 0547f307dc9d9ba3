"""Decides which fault a request for an order gets. Pure, except for the random generator and the bucket of the rate limit."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import accumulate
from random import Random

from ingest.lab.bucket import Bucket
from ingest.lab.upstream.behaviour import SHARES, Behaviour
from ingest.lab.upstream.latency import Latency

Accepts = Callable[[bytes | None], bool]
"""Whether a request with this credential is accepted."""


class Fault(Enum):
    """The response sent instead of the order."""

    ERROR = "error_rate"
    UNAVAILABLE = "unavailable_rate"
    NOT_FOUND = "not_found_rate"
    REDIRECT = "redirect_rate"
    MALFORMED = "malformed_rate"
    WRONG_TYPE = "wrong_type_rate"
    OVERSIZE = "oversize_rate"
    TRUNCATE = "truncate_rate"
    RESET = "reset_rate"
    HANG = "hang_rate"
    # Rejections, which are sent immediately.
    DOWN = "down"
    OVERLOADED = "overloaded"
    DOWN_RESET = "down_reset"
    DOWN_PAGE = "down_page"
    DOWN_EMPTY = "down_empty"
    DOWN_404 = "down_404"
    UNAUTHORIZED = "unauthorized"
    THROTTLED = "throttled"


_DOWN = {
    "503": Fault.DOWN,
    "reset": Fault.DOWN_RESET,
    "page": Fault.DOWN_PAGE,
    "empty": Fault.DOWN_EMPTY,
    "404": Fault.DOWN_404,
}


class FaultPlan:
    """One behaviour, prepared for evaluation once per request."""

    def __init__(self, behaviour: Behaviour, random: Random, accepts: Accepts | None) -> None:
        shares = [getattr(behaviour, share) for share in SHARES]
        self._drawn = [Fault(share) for share in SHARES]
        self._thresholds = list(accumulate(shares))
        self._random = random
        self._latency = Latency.parse(behaviour.latency)
        self._down = _DOWN[behaviour.down] if behaviour.down else None
        self._accepts = accepts
        self._bucket = self._bucket_of(behaviour)
        self._concurrency = behaviour.concurrency_limit
        self._fail_first = behaviour.fail_first
        self._tries: dict[bytes, int] = {}
        self._breaking = None if behaviour.breaking_id is None else f"/{behaviour.breaking_id}".encode()
        self.faulty = self._thresholds[-1] > 0 or self._breaking is not None
        self.guarded = bool(self._down or self._accepts or self._bucket or self._concurrency)

    @staticmethod
    def _bucket_of(behaviour: Behaviour) -> Bucket | None:
        if not behaviour.rate_limit:
            return None
        return Bucket(behaviour.rate_limit, behaviour.rate_burst or max(1.0, behaviour.rate_limit))

    def refuse(self, authorization: bytes | None, concurrency: int) -> Fault | None:
        """Return why a request is rejected before processing, or None. This is only needed if the plan is `guarded`.

        `concurrency` is the number of requests in progress, including this one.
        """
        if self._down:
            return self._down
        if self._accepts and not self._accepts(authorization):
            return Fault.UNAUTHORIZED
        if self._concurrency and concurrency > self._concurrency:
            return Fault.THROTTLED
        if self._bucket and not self._bucket.take():
            return Fault.THROTTLED
        return None

    def draw(self, key: bytes, keys: Sequence[bytes] = ()) -> Fault | None:
        """Return the fault that this request for `key` draws, or None. This is only needed if the plan is `faulty`.

        `keys` are the orders of a request to the list endpoint.
        """
        if self._breaking is not None and any(path.endswith(self._breaking) for path in (keys or (key,))):
            return Fault.ERROR
        if self._fail_first:
            tries = self._tries[key] = self._tries.get(key, 0) + 1
            if tries > self._fail_first:
                return None
        drawn = bisect_right(self._thresholds, self._random.random())
        return self._drawn[drawn] if drawn < len(self._drawn) else None

    def draw_latency(self) -> float:
        """Return the seconds until the response."""
        return self._latency.draw(self._random)
