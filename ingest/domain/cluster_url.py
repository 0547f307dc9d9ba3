"""The URL of a Redis Cluster: `redis+cluster://HOST,HOST,HOST`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode

from ingest.domain.redis_addresses import NAT_OPTION, Address, addresses_of, reached_at

EXAMPLE = "redis+cluster://host1:6379,host2:6379,host3:6379"
SCHEMES = ("redis+cluster", "rediss+cluster")
_DEFAULT_PORT = 6379
_PARTS = re.compile(r"(?P<scheme>[a-z]+)\+cluster://(?:(?P<account>[^/?#]*)@)?(?P<hosts>[^/?#]*)(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?", re.IGNORECASE)  # fmt: skip


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
    # `urlsplit` takes no list of hosts with an IPv6 address.
    parts = _PARTS.fullmatch(url)
    if parts is None:
        raise ValueError(f"must have the form {EXAMPLE}")
    options = parse_qsl(parts["query"] or "", keep_blank_values=True)
    if parts["path"] not in {"", "/", "/0"} or any(name == "db" and value != "0" for name, value in options):
        raise ValueError(f"must not contain a number of a database, because a cluster has only database 0: {EXAMPLE}")
    nodes = addresses_of(parts["hosts"], _DEFAULT_PORT, f"must name hosts of nodes of the cluster, such as {EXAMPLE}")
    account = f"{parts['account']}@" if parts["account"] is not None else ""
    host = parts["hosts"].partition(",")[0]
    query = urlencode([(name, value) for name, value in options if name != NAT_OPTION])
    redis_url = f"{parts['scheme'].lower()}://{account}{host}/0" + (f"?{query}" if query else "")
    return ClusterUrl(nodes, redis_url, reached_at(options))
