"""The rate of requests to an API that counts points, which follows the cost of requests and the points that are left.

The API restores points at a fixed rate, up to a maximum, and a request is rejected if fewer points are available than it may need. The
rate aims at half of the maximum. With more, points would be lost when the maximum is reached. With fewer, requests might be rejected.

A GraphQL response contains the cost, for example in Shopify's form (https://shopify.dev/docs/api/usage/limits): `{"extensions": {"cost":
{"requestedQueryCost": 92, "actualQueryCost": 31, "throttleStatus": {"maximumAvailable": 2000, "currentlyAvailable": 1969, "restoreRate":
100}}}}`. Pure values and functions.
"""

import msgspec

from ingest.domain.fetch.quota import QueryCost, QuotaLimits

# The lowest weight of one response in the average cost. The first responses have more.
_WEIGHT = 0.05
# How many points should be left: a share of the maximum.
_LEFT = 0.5
# How much faster requests are sent with the maximum left.
_CORRECTION = 0.3
# With a smaller share left, the rate falls to a part. Processes see the rest of the points at different times, and the slowest of them
# slows down all others.
_LITTLE = 0.25
_SLOWEST = 0.3
# A request counts at least this share of the points that it may need. A time with missing orders, which cost nothing, must not be
# followed by more orders in flight than there are points for.
_LEAST = 0.05
_HIGHEST = 1e9


class _Throttle(msgspec.Struct, rename="camel"):
    maximum_available: float
    currently_available: float
    restore_rate: float


class _Cost(msgspec.Struct, rename="camel"):
    requested_query_cost: float
    throttle_status: _Throttle
    actual_query_cost: float | None = None


class _Extensions(msgspec.Struct):
    cost: _Cost


class _Response(msgspec.Struct):
    extensions: _Extensions


_decode = msgspec.json.Decoder(_Response).decode


def cost_of(body: bytes) -> QueryCost | None:
    """Return the cost in a response, or None if it contains none."""
    try:
        cost = _decode(body).extensions.cost
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    status, actual = cost.throttle_status, cost.actual_query_cost
    numbers = (cost.requested_query_cost, status.maximum_available, status.restore_rate)
    if not all(0 < number < _HIGHEST for number in numbers):
        return None
    return QueryCost(
        requested=cost.requested_query_cost,
        actual=actual if actual is not None and 0 <= actual < _HIGHEST else None,
        maximum=status.maximum_available,
        available=max(0.0, min(status.currently_available, status.maximum_available)),
        restored=status.restore_rate,
    )


class PointRate:
    """The requests per second over all processes that the points allow, by the responses to one process.

    Args:
        limits: with the expected cost of a request.
    """

    def __init__(self, limits: QuotaLimits) -> None:
        self._most = limits.rate * limits.cost
        self._average = limits.cost
        self._count = 1
        self._last: QueryCost | None = None
        self._learned_at = 0.0

    @property
    def is_known(self) -> bool:
        """Whether a response has contained the cost."""
        return self._last is not None

    def learn(self, cost: QueryCost, now: float) -> None:
        """Adapt to the cost in a response."""
        self._last, self._learned_at = cost, now
        if cost.actual is not None:
            self._count += 1
            weight = max(_WEIGHT, 1 / self._count)
            self._average += weight * (max(cost.actual, _LEAST * cost.requested) - self._average)

    def requests(self, now: float) -> float:
        """Return the requests per second over all processes."""
        if self._last is None:
            return self._most / self._average
        last = self._last
        # Other processes have sent requests since, at about the same rate.
        spared = (1 - _correction(last.available / last.maximum)) * last.restored * (now - self._learned_at)
        left = min(1.0, max(0.0, (last.available + spared) / last.maximum))
        return min(self._most, last.restored * _correction(left)) / self._average


def _correction(left: float) -> float:
    return (1 + _CORRECTION * (left - _LEFT)) * max(_SLOWEST, min(1.0, left / _LITTLE))
