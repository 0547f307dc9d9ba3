"""The URL of a Redis that Sentinels watch: `redis+sentinel://HOST,HOST,HOST/SERVICE/DATABASE`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlencode, urlunsplit

from ingest.domain.redis_urls.redis_addresses import NAT_OPTION, Address, addresses_of, reached_at, split_hosts

EXAMPLE = "redis+sentinel://host1:26379,host2:26379,host3:26379/SERVICE/0"
SCHEMES = ("redis+sentinel", "rediss+sentinel")
# The option with the password of the Sentinels.
PASSWORD_OPTION = "sentinel_password"  # noqa: S105  its name
_USERNAME_OPTION = "sentinel_username"
_DEFAULT_PORT = 26379
# The names that Sentinel accepts.
_SERVICE = re.compile(r"[A-Za-z0-9._-]+")
_DATABASE = re.compile(r"[0-9]*")


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """Parts of the URL. It contains passwords, so they are not shown.

    Attributes:
        sentinels: addresses of the Sentinels.
        service: the name under which the Sentinels watch the primary.
        redis_url: user, password, database and options of connections to the primary. Its host is the first Sentinel's.
        username: of the Sentinels, or None.
        password: of the Sentinels, or None.
        reached_at: addresses that differ from those that the Sentinels report, by the reported ones.
    """

    sentinels: tuple[Address, ...]
    service: str
    redis_url: str = field(repr=False)
    username: str | None
    password: str | None = field(repr=False)
    reached_at: Mapping[Address, Address]


def is_sentinel_url(url: str) -> bool:
    """Whether a URL has one of the schemes."""
    return url.partition("://")[0].lower() in SCHEMES


def parse_sentinel_url(url: str) -> SentinelUrl:
    """Parse the URL.

    Raises:
        ValueError: the URL is invalid. The message does not contain it, because it may contain a password.
    """
    parts = split_hosts(url)
    account, at, hosts = parts.netloc.rpartition("@")
    service, _, database = parts.path.removeprefix("/").partition("/")
    service = unquote(service)
    if not service:
        raise ValueError(f"must contain the name of the service that the Sentinels watch, such as {EXAMPLE}")
    if not _SERVICE.fullmatch(service):
        raise ValueError(
            f"contains a name of a service with other characters than letters, digits and . _ -: {EXAMPLE}"
        )
    if not _DATABASE.fullmatch(database):
        raise ValueError(f"must end with the number of the database, such as {EXAMPLE}")
    sentinels = addresses_of(hosts, _DEFAULT_PORT, f"must name the hosts of the Sentinels, such as {EXAMPLE}")
    options = parse_qsl(parts.query, keep_blank_values=True)
    own = {name: value for name, value in options if name in {_USERNAME_OPTION, PASSWORD_OPTION}}
    rest = [(name, value) for name, value in options if name not in {_USERNAME_OPTION, PASSWORD_OPTION, NAT_OPTION}]
    scheme = parts.scheme.partition("+")[0]
    host = hosts.partition(",")[0]
    return SentinelUrl(
        sentinels,
        service,
        urlunsplit((scheme, f"{account}{at}{host}", f"/{database or 0}", urlencode(rest), "")),
        own.get(_USERNAME_OPTION),
        own.get(PASSWORD_OPTION),
        reached_at(options),
    )


def with_sentinel_password(url: str, password: str) -> str:
    """Return the URL with the password of the Sentinels.

    Raises:
        ValueError: the URL is not one of Sentinels, or contains a password for them.
    """
    parts = split_hosts(url)
    if not is_sentinel_url(url):
        raise ValueError("is not the URL of Sentinels")
    options = parse_qsl(parts.query, keep_blank_values=True)
    if any(name == PASSWORD_OPTION for name, _ in options):
        raise ValueError("contains a password for the Sentinels")
    return urlunsplit(parts._replace(query=urlencode([*options, (PASSWORD_OPTION, password)])))
