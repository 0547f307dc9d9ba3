"""The URL of a Redis Cluster: `redis+cluster://HOST,HOST,HOST`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlunsplit

from ingest.domain.redis_urls.redis_addresses import NAT_OPTION, Address, addresses_of, reached_at, split_hosts

EXAMPLE = "redis+cluster://host1:6379,host2:6379,host3:6379"
SCHEMES = ("redis+cluster", "rediss+cluster")
_DEFAULT_PORT = 6379


@dataclass(frozen=True, slots=True)
class ClusterUrl:
    """Parts of the URL. It contains passwords, so they are not shown.

    Attributes:
        nodes: addresses of some nodes, which report the others.
        redis_url: user, password and options of connections to a node. Its host is the first node's.
        reached_at: addresses that differ from those that the nodes report, by the reported ones.
    """

    nodes: tuple[Address, ...]
    redis_url: str = field(repr=False)
    reached_at: Mapping[Address, Address]


def is_cluster_url(url: str) -> bool:
    """Whether a URL has one of the schemes."""
    return url.partition("://")[0].lower() in SCHEMES


def parse_cluster_url(url: str) -> ClusterUrl:
    """Parse the URL.

    Raises:
        ValueError: the URL is invalid. The message does not contain it, because it may contain a password.
    """
    parts = split_hosts(url)
    account, at, hosts = parts.netloc.rpartition("@")
    options = parse_qsl(parts.query, keep_blank_values=True)
    if parts.path not in {"", "/", "/0"} or any(name == "db" and value != "0" for name, value in options):
        raise ValueError(f"must not contain the number of a database, because a cluster has only database 0: {EXAMPLE}")
    nodes = addresses_of(hosts, _DEFAULT_PORT, f"must name hosts of nodes of the cluster, such as {EXAMPLE}")
    query = urlencode([(name, value) for name, value in options if name != NAT_OPTION])
    scheme = parts.scheme.partition("+")[0]
    host = hosts.partition(",")[0]
    return ClusterUrl(nodes, urlunsplit((scheme, f"{account}{at}{host}", "/0", query, "")), reached_at(options))
