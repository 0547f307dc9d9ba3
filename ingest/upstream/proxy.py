"""The proxy to the external API, as the environment names it: looked up once, not for each request."""

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # typeshed forgot it

from ingest.domain.errors import ConfigError


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
    return proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.upper()) or ""


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
