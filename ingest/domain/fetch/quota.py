"""The leases by which all processes share the quota."""

import msgspec

# The share of the rate that is not granted, because requests begin up to 10 ms late, and clocks are converted with a small error.
_MARGIN = 0.02


class QuotaLimits(msgspec.Struct, frozen=True):
    """The limits of the external API over all processes.

    Attributes:
        rate: requests per second, or 0 for unlimited.
        burst: requests that may be sent together after a pause.
        concurrency: concurrent requests, or 0 for unlimited.
        cost: expected points of one request, if the API counts points. 0 if it counts requests.
        rate_header: header of responses with the requests per second that the API permits, or "" for none.
        starts_full: whether the burst is available while nothing is known about earlier requests.
    """

    rate: float = 0.0
    burst: int = 1
    concurrency: int = 0
    cost: float = 0.0
    rate_header: str = ""
    starts_full: bool = False

    def with_rate(self, rate: float) -> "QuotaLimits":
        """Return these limits with another number of requests per second, spread evenly.

        A small share of the rate is not granted, so that no more than `rate` requests begin within any second.
        """
        return msgspec.structs.replace(self, rate=(1 - _MARGIN) * rate, burst=1)


class QueryCost(msgspec.Struct, frozen=True):
    """The cost of a request to an API that counts points, by its response.

    Attributes:
        requested: points that have to be available before the request is processed.
        actual: points that it has used, or None if it was not processed.
        maximum: the most points that may be available.
        available: points that are available now.
        restored: points that become available in each second.
    """

    requested: float
    actual: float | None
    maximum: float
    available: float
    restored: float

    @property
    def wait(self) -> float:
        """Seconds until as many points are available as the same request needs."""
        return max(0.0, self.requested - self.available) / self.restored


class LeaseRequest(msgspec.Struct, frozen=True):
    """A request of a process for a lease.

    Attributes:
        tokens: requests to send next.
        rate: limit of requests per second over all processes, or 0 for the configured one.
        concurrency: requests wanted in flight.
        claim: the most requests in flight until the reply.
        transit: seconds in which the reply should arrive.
        is_back: whether processes may have used their safe shares, because the server was unreachable.
        members: last known number of processes that share the quota, or 0 if unknown.
        is_unused: whether requests wait but none has used the last lease, because it has not begun yet.
        slowest: limit of requests per second over all processes, from headers of the API.
        slow_for: seconds until that limit ends.
    """

    tokens: int = 0
    rate: float = 0.0
    concurrency: int = 0
    claim: int = 0
    transit: float = 0.0
    is_back: bool = False
    members: int = 0
    is_unused: bool = False
    slowest: float = 0.0
    slow_for: float = 0.0


class Lease(msgspec.Struct, frozen=True):
    """A lease. Times are in seconds from when the server carries out the call.

    Attributes:
        tokens: requests that may be sent.
        starts_in: when the first of them may be sent. With a saved burst, several may be sent when the reply arrives.
        spacing: time between two of them.
        limit: requests that may be in flight.
        period: shortest interval between lease requests.
        renew_in: earliest time of the next lease request.
        members: processes that share the quota, including this one.
        is_learning: whether the server is still collecting existing leases. It grants no requests, and safe shares apply.
        paused: how long no process may send requests.
        time: of the server's clock, when it carries out the call.
    """

    tokens: int = 0
    starts_in: float = 0.0
    spacing: float = 0.0
    limit: int = 0
    period: float = 0.1
    renew_in: float = 0.025
    members: int = 1
    is_learning: bool = False
    paused: float = 0.0
    time: float = 0.0
