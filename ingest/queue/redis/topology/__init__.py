"""Finds the server that owns a key. The rest of `queue` does not depend on the kind of topology."""

from ingest.domain.sentinel_url import is_sentinel_url, parse_sentinel_url
from ingest.queue.redis.topology.port import Owner, Topology
from ingest.queue.redis.topology.sentinel import SentinelTopology
from ingest.queue.redis.topology.standalone import StandaloneTopology

__all__ = ["Owner", "Topology", "only_owner", "topology_of"]


def topology_of(url: str) -> Topology:
    """Return the topology that a URL describes. It connects when it is first used.

    Raises:
        ValueError: the URL is invalid.
    """
    if is_sentinel_url(url):
        return SentinelTopology(parse_sentinel_url(url))
    return StandaloneTopology(url)


def only_owner(at: str | Owner) -> Owner:
    """Return the owner of all keys at a URL, or the given owner."""
    return topology_of(at).owner_of("") if isinstance(at, str) else at
