"""The proxy to the external API, as the environment names it: looked up once, not for each request."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed forgot it

from ingest.domain.errors import ConfigError

# Stricter than either client: one that cannot take a URL apart quotes it in its error, password and all.
_PROXY = re.compile(
    r"https?://(?:[^\s/?#@\\\x00-\x1f\x7f]*@)?(?:\[[0-9a-f:.]+\]|[\w.-]+)(?::(?P<port>[0-9]{1,5}))?/?", re.IGNORECASE
)


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy for `url` by HTTP_PROXY, HTTPS_PROXY and NO_PROXY, in capitals or small letters.

    This machine's own addresses are never reached through a proxy.

    Raises:
        ConfigError: if it is none that both of our clients know.
    """
    parts = urlsplit(url)
    name = f"{parts.scheme}_proxy"
    proxy = _variable(environ, name)
    host = parts.hostname or ""
    at = f"{host}:{parts.port}" if parts.port else host
    if not proxy or _is_here(host) or proxy_bypass_environment(at, {"no": _variable(environ, "no_proxy")}):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not proxy.lower().startswith(("http://", "https://")):
        raise ConfigError(f"{name.upper()}: must start with http:// or https://, such as http://proxy.example:3128")
    known = _PROXY.fullmatch(proxy)
    if known is None or int(known["port"] or 0) > 65_535:
        raise ConfigError(
            f"{name.upper()}: is no URL of a proxy, such as http://user:password@proxy.example:3128, with %2F %3F %23 %40 for "
            "/ ? # @ in the password"
        )
    return proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
