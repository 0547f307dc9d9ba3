"""URLs as they may be shown: in a table, an error or a log, without what opens a door."""

import re
from urllib.parse import urlsplit, urlunsplit

PLACEHOLDER = "{order_id}"
MASK = "***"
# Options in the URLs of Redis and PostgreSQL that are no secret, and tell something; all others are masked.
_SHOWN_OPTIONS = frozenset({
    "application_name", "connect_timeout", "database", "db", "dbname", "gssencmode", "host", "port", "protocol", "socket_timeout",
    "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname", "sslcrl", "sslmode", "sslnegotiation", "sslrootcert",
    "target_session_attrs", "user", "username",
})  # fmt: skip
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")


def mask_url(url: str) -> str:
    """The URL with what may be secret replaced by `***`: passwords, and values in the query; `{order_id}` stays.

    Of the external API's URL, also all that stands before the host: keys are put there as users.

    Raises:
        ValueError: if it is no URL, so that there is no telling where its password is.
    """
    parts = urlsplit(url)
    netloc, path, shown = parts.netloc, parts.path, _SHOWN_OPTIONS
    if parts.scheme in {"http", "https"}:
        # For urlsplit, a slash in a password ends the host.
        account, at, host = (netloc + path).rpartition("@")
        netloc, path, shown = f"{MASK if account else ''}{at}{host}", "", frozenset()
    else:
        account, at, host = netloc.rpartition("@")
        user, colon, _ = account.partition(":")
        netloc = f"{user}{colon}{MASK if colon else ''}{at}{host}"
    query = "&".join(_mask_option(option, shown) for option in parts.query.split("&"))
    fragment = MASK if parts.fragment else ""
    return urlunsplit(parts._replace(netloc=netloc, path=path, query=query, fragment=fragment))


def mask_urls(text: str) -> str:
    """A text, such as a library's error, with every URL in it masked."""
    return _URL.sub(_masked, text) if "://" in text else text


def _masked(url: re.Match[str]) -> str:
    try:
        return mask_url(url[0])
    except ValueError:
        return MASK


def _mask_option(option: str, shown: frozenset[str]) -> str:
    name, equals, value = option.partition("=")
    if not equals:
        name, value = "", option
    if name in shown:
        return option
    return name + equals + PLACEHOLDER.join(MASK if text else "" for text in value.split(PLACEHOLDER))
