"""The right of one process to send requests: a lease, or its safe share while there is no server to lease from.

A lease remains valid if single calls to renew it are lost. While the server is unavailable, a process continues with its safe share, which is the quota divided by the last known number of processes (safe capacity, as in Doorman). Others may still have requests in flight by their last leases, so a process does not
exceed the concurrency of its last lease until the longest request has ended. A process that has only been a member for a short time
has no safe share, because others may not have counted it.

Pure values and functions.
"""

import math
from dataclasses import dataclass, field

import msgspec

from ingest.domain.fetch.quota import Lease

# How long a lease is valid after the call that requested it. The server counts it for longer.
VALID = 3.0


@dataclass(frozen=True, slots=True)
class Leased:
    """A lease. It grants nothing before the first call, and after its end.

    Attributes:
        lease: as granted.
        member_since: since when this process has called the server without a gap.
        asked_at: when it was requested.
    """

    lease: Lease = field(default_factory=Lease)
    member_since: float = -math.inf
    asked_at: float = -math.inf


@dataclass(frozen=True, slots=True)
class Safe:
    """The safe share of a process that cannot reach the server.

    Attributes:
        lease: the last one.
        member_since: as with a lease.
        since: when the share began.
    """

    lease: Lease
    member_since: float
    since: float


Right = Leased | Safe


def renewed(right: Right, lease: Lease, asked_at: float) -> Leased:
    """Return the right after the server has granted a lease."""
    is_gap = isinstance(right, Leased) and asked_at > right.asked_at + VALID
    return Leased(lease, asked_at if is_gap else right.member_since, asked_at)


def claimed(right: Right, claim: int) -> Right:
    """Return the right after a call that claims less than the whole lease, and so gives up the rest."""
    if isinstance(right, Leased) and claim < right.lease.limit:
        return Leased(msgspec.structs.replace(right.lease, limit=claim), right.member_since, right.asked_at)
    return right


def without_server(right: Right, since: float, now: float) -> Right:
    """Return the right without a lease since a call at `since`: a safe share for a process that the others have counted."""
    if isinstance(right, Safe) or since > right.asked_at + VALID:
        return right
    # All others have called since this process became a member, or have left.
    is_known = right.asked_at - right.member_since >= VALID
    return Safe(right.lease, right.member_since, now) if is_known else right


def is_valid(right: Right, called_at: float, now: float) -> bool:
    """Return whether requests may be sent. A safe share ends when the server, last called at `called_at`, is not called any more."""
    return now < (right.asked_at if isinstance(right, Leased) else called_at) + VALID


def concurrency(right: Right, quota: int, longest: float, now: float) -> int:
    """Return how many requests may be in flight by a valid right, given the fleet's quota and how long a request takes at most."""
    if isinstance(right, Leased):
        return right.lease.limit
    fair = quota // right.lease.members
    return min(right.lease.limit, fair) if now < right.since + longest else fair
