"""Where a redirect leads: to the same origin, or nowhere. Pure.

A redirect elsewhere is mostly a login page, a maintenance page or a wrong address, and never somewhere to take a credential.
"""

from urllib.parse import SplitResult, quote, urljoin, urlsplit

MOST_REDIRECTS = 5
_STATUSES = frozenset({301, 302, 303, 307, 308})
_PORTS = {"http": 80, "https": 443}
# What a URL may hold besides letters and digits; `%` is there so that nothing is quoted twice.
_ALLOWED = "-._~:/?#[]@!$&'()*+,;=%"


class RefusedRedirect(ValueError):
    """A redirect that is not followed; the message says why, without what may be a secret."""


def redirected(url: str, status: int, location: str | None) -> str | None:
    """The URL that an answer to `url` sends us to; None if it is no redirect.

    Raises:
        RefusedRedirect: if it leads to another scheme, host or port, or is no URL.
    """
    if status not in _STATUSES or not location:
        return None
    base = urlsplit(url)
    try:
        target = urlsplit(urljoin(url, quote(location.strip(), safe=_ALLOWED)))
        leads_to, comes_from = _origin(target), _origin(base)
    except ValueError as error:
        raise RefusedRedirect("leads to what is no URL of HTTP") from error
    if leads_to is None:
        raise RefusedRedirect("leads to what is no URL of HTTP")
    if leads_to != comes_from:
        raise RefusedRedirect(f"leads to another origin, {leads_to[0]}://{leads_to[1]}:{leads_to[2]}")
    # The user part of the URL that was set stays, whatever the answer says.
    return target._replace(netloc=base.netloc, fragment="").geturl()


def _origin(parts: SplitResult) -> tuple[str, str, int] | None:
    port = parts.port or _PORTS.get(parts.scheme)
    return (parts.scheme, parts.hostname, port) if parts.scheme in _PORTS and parts.hostname and port else None
