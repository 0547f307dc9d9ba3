"""Masks credentials in URLs, so that they can be shown in a table, an error or a log."""

import re
from collections.abc import Mapping
from urllib.parse import urlunsplit

from ingest.domain.redis_urls.redis_addresses import split_hosts

PLACEHOLDER = "{order_id}"
BULK_PLACEHOLDER = "{order_ids}"
LIST_PLACEHOLDERS = ("{since}", "{until}", "{cursor}", "{size}")
MASK = "***"
# Options in the URLs of Redis and PostgreSQL that are not secret. All others are masked.
_SHOWN_OPTIONS = frozenset({
    "application_name", "connect_timeout", "database", "db", "dbname", "gssencmode", "host", "nat", "port", "protocol", "sentinel_username", "socket_timeout",
    "ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_check_hostname", "ssl_keyfile", "sslcert", "sslcrl", "sslkey", "sslmode",
    "sslnegotiation", "sslrootcert", "target_session_attrs", "user", "username",
})  # fmt: skip
# Parameters of the URLs of external APIs that are not secret.
_SHOWN_PARAMETERS = frozenset({
    "expand", "fields", "format", "include", "limit", "offset", "order", "orderby", "page", "page_size", "per_page", "since", "sort", "status", "until",
})  # fmt: skip
_SHOWN_HEADERS = frozenset({"accept", "accept-language", "content-type", "prefer", "user-agent"})
_PLACEHOLDERS = re.compile(f"({'|'.join(map(re.escape, (PLACEHOLDER, BULK_PLACEHOLDER, *LIST_PLACEHOLDERS)))})")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"]+")


def mask_url(url: str) -> str:
    """Return the URL with passwords and query values replaced by `***`, except placeholders and known parameters such as `limit`.

    In the URL of the external API, the whole user part is masked, because it may contain an API key as the user name.

    Raises:
        ValueError: it is not a URL, so its password cannot be located.
    """
    parts = split_hosts(url)
    netloc, path, shown = parts.netloc, parts.path, _SHOWN_OPTIONS
    if parts.scheme in {"http", "https"}:
        # urlsplit ends the host at a slash, even at a slash in a password.
        account, at, host = (netloc + path).rpartition("@")
        netloc, path, shown = f"{MASK if account else ''}{at}{host}", "", _SHOWN_PARAMETERS
    else:
        account, at, host = netloc.rpartition("@")
        user, colon, _ = account.partition(":")
        netloc = f"{user}{colon}{MASK if colon else ''}{at}{host}"
    query = "&".join(_mask_option(option, shown) for option in parts.query.split("&"))
    fragment = MASK if parts.fragment else ""
    return urlunsplit(parts._replace(netloc=netloc, path=path, query=query, fragment=fragment))


def mask_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the headers of requests with all values replaced by `***`, except of known headers such as `Accept`."""
    return {name: value if name.lower() in _SHOWN_HEADERS else MASK for name, value in headers.items()}


def mask_urls(text: str) -> str:
    """Return a text, such as an error of a library, with every URL in it masked."""
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
    texts = _PLACEHOLDERS.split(value)
    return name + equals + "".join(text if _PLACEHOLDERS.fullmatch(text) else MASK for text in texts if text)
