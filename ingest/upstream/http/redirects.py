"""Resolves redirects, within the same origin only. Pure functions.

A redirect to another origin is usually a login page, a maintenance page or a wrong address, and credentials must not be sent
there.
"""

from urllib.parse import SplitResult, quote, urljoin, urlsplit

from ingest.upstream.http.transport import DEFAULT_PORTS

MAX_REDIRECTS = 5
_STATUSES = frozenset({301, 302, 303, 307, 308})
# Allowed in a URL in addition to letters and digits, including `%`, so that nothing is quoted twice.
_ALLOWED = "-._~:/?#[]@!$&'()*+,;=%"


class RefusedRedirect(ValueError):
    """A redirect that is not followed. The message gives the reason, without parts that may be secret."""


def redirect_target(url: str, status: int, location: str | None) -> str | None:
    """Return the URL to which a response to `url` redirects, or None if it is not a redirect.

    Raises:
        RefusedRedirect: the target has another scheme, host or port, or is not a URL.
    """
    if status not in _STATUSES or not location:
        return None
    base = urlsplit(url)
    try:
        target = urlsplit(urljoin(url, quote(location.strip(), safe=_ALLOWED)))
        target_origin, base_origin = _origin(target), _origin(base)
    except ValueError as error:
        raise RefusedRedirect("does not lead to an HTTP URL") from error
    if target_origin is None:
        raise RefusedRedirect("does not lead to an HTTP URL")
    if target_origin != base_origin:
        raise RefusedRedirect(f"leads to another origin, {target_origin[0]}://{target_origin[1]}:{target_origin[2]}")
    # The credentials of the configured URL are kept, regardless of the response.
    return target._replace(netloc=base.netloc, fragment="").geturl()


def repeats_method(method: str, status: int) -> bool:
    """Return whether the request to the target has the same method and body. Otherwise it is a GET (RFC 9110, section 15.4)."""
    return method == "GET" or status in (307, 308)


def _origin(parts: SplitResult) -> tuple[str, str, int] | None:
    port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    return (parts.scheme, parts.hostname, port) if parts.scheme in DEFAULT_PORTS and parts.hostname and port else None
