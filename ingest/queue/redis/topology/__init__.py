"""Finds the server that owns a key. The rest of `queue` does not depend on the kind of topology."""

from ingest.domain.redis_urls.cluster_url import is_cluster_url, parse_cluster_url
from ingest.domain.redis_urls.sentinel_url import is_sentinel_url, parse_sentinel_url
from ingest.queue.redis.topology.cluster import ClusterTopology
from ingest.queue.redis.topology.port import Owner, Server, Topology
from ingest.queue.redis.topology.sentinel import SentinelTopology
from ingest.queue.redis.topology.standalone import StandaloneTopology

__all__ = ["Owner", "Server", "Topology", "topology_of"]


def topology_of(url: str) -> Topology:
    """Return the topology that a URL describes. It connects when it is first used.

    Raises:
        ValueError: the URL is invalid.
    """
    if is_cluster_url(url):
        return ClusterTopology(parse_cluster_url(url))
    if is_sentinel_url(url):
        return SentinelTopology(parse_sentinel_url(url))
    return StandaloneTopology(url)
