"""Finds the proxy for the external API in the environment, once at start-up."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from ingest.domain.errors import ConfigError
from ingest.upstream.http.transport import DEFAULT_PORTS

# Stricter than either client, because a client that cannot parse a URL quotes it in its error, including the password.
_PROXY = re.compile(
    r"https?://(?:[^\s/?#@\\\x00-\x1f\x7f]*@)?(?:\[[0-9a-f:.]+\]|[\w.-]+)(?::(?P<port>[0-9]{1,5}))?/?", re.IGNORECASE
)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for `url` by HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in upper or lower case.

    Local addresses are never reached through a proxy.

    Raises:
        ConfigError: the URL is invalid, or not supported by both clients.
    """
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    proxy = _variable(environ, name)
    host = parts.hostname or ""
    at = f"{f'[{host}]' if ':' in host else host}:{parts.port or DEFAULT_PORTS.get(parts.scheme, 80)}"
    if not proxy or _is_reached_directly(host, at, _variable(environ, "no_proxy")):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.lower().startswith(("http://", "https://")):
        raise ConfigError(f"{name.upper()}: must start with http:// or https://, such as http://proxy.example:3128")
    known = _PROXY.fullmatch(proxy)
    if known is None or int(known["port"] or 0) > 65_535:
        raise ConfigError(
            f"{name.upper()}: is not a valid proxy URL, such as http://user:password@proxy.example:3128, with %2F %3F %23 %40 for "
            "/ ? # @ in the password"
        )
    return proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_reached_directly(host: str, at: str, excepted: str) -> bool:
    """Whether a host is local, or excepted by its name, its address or a network such as 10.0.0.0/8 or fd00::/8."""
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # noqa: PLC0415  large, and missing in typeshed

    if host == "localhost" or proxy_bypass_environment(at, {"no": excepted}):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or any(address in network for network in _networks(excepted))


def _networks(excepted: str) -> Iterator[IPv4Network | IPv6Network]:
    for entry in excepted.split(","):
        with suppress(ValueError):
            yield ip_network(entry.strip(), strict=False)
