"""The quota that all processes share: what a process asks of it, and what it is leased."""

import msgspec


class QuotaLimits(msgspec.Struct, frozen=True):
    """The limits of the external API over all processes.

    Attributes:
        rate: requests per second; 0: unlimited.
        burst: requests that may be sent at once after a time with fewer.
        concurrency: requests at a time; 0: unlimited.
    """

    rate: float = 0.0
    burst: int = 1
    concurrency: int = 0


class LeaseRequest(msgspec.Struct, frozen=True):
    """What a process asks for.

    Attributes:
        tokens: requests that it wants to send next.
        concurrency: requests that it wants to have in flight.
        in_flight: requests that it has in flight now.
        claim: requests that it may have in flight by its last lease, or by its safe share.
        is_back: whether it could not reach the server since its last lease.
        members: processes that shared the quota when this one last knew; 0 if it never did.
        is_unused: whether requests wait, and none has begun by the last lease: their times to begin have not come.
        slowest: requests per second to which the API's own headers limit the fleet, if they do.
        slow_for: seconds for which.
    """

    tokens: int = 0
    concurrency: int = 0
    in_flight: int = 0
    claim: int = 0
    is_back: bool = False
    members: int = 0
    is_unused: bool = False
    slowest: float = 0.0
    slow_for: float = 0.0


class Lease(msgspec.Struct, frozen=True):
    """What a process is leased. Times are in seconds from the server's reply.

    Attributes:
        tokens: requests that may be sent.
        starts_in: when the first of them may be sent; negative for one that might have been sent before.
        spacing: between two of them.
        limit: requests that may be in flight.
        period: how often a process asks, at most.
        asks_in: when to ask next, at the earliest.
        members: processes that share the quota, this one included.
        is_learning: the server does not know yet what others hold: nothing is granted, and safe shares hold.
        paused: for how long no process may send anything.
    """

    tokens: int = 0
    starts_in: float = 0.0
    spacing: float = 0.0
    limit: int = 0
    period: float = 0.1
    asks_in: float = 0.025
    members: int = 1
    is_learning: bool = False
    paused: float = 0.0
