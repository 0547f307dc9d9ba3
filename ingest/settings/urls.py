"""Checks URLs of settings. Messages never contain the URL, because it may contain a password."""

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from ingest.domain.redis_urls.redis_addresses import split_hosts
from ingest.files.regular import open_regular

# Options of the Redis and PostgreSQL clients that name files of certificates and keys.
_FILE_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "sslrootcert", "sslcert", "sslkey", "sslcrl")
_AUTHORITIES = ("ssl_ca_certs", "sslrootcert")
# A certificate, its key, and the key's password.
_PAIRS = (("ssl_certfile", "ssl_keyfile", "ssl_password"), ("sslcert", "sslkey", "sslpassword"))
# A host name with one of these differs between IDNA 2003 (Python) and IDNA 2008 (browsers).
_AMBIGUOUS = re.compile("[\u00df\u03c2\u200c\u200d]")


def require_scheme(url: str, schemes: tuple[str, ...], example: str, *, several_hosts: bool = False) -> None:
    """Require a URL with one of these schemes, a host that is the same for all programs, and a port that is a number.

    Raises:
        ValueError: it is something else.
    """
    expected = f"must start with {' or '.join(scheme + '://' for scheme in schemes)}, such as {example}"
    try:
        parts = split_hosts(url) if several_hosts else urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        for host in hosts.split(",") if several_hosts else [hosts]:
            _ = urlsplit(f"//{host}").port  # parsed, and raises, on access only
    except ValueError:
        raise ValueError(f"is not a URL, or its port is not a number: {expected}") from None
    if parts.scheme not in schemes:
        raise ValueError(expected)
    if _AMBIGUOUS.search(hosts.lower()):
        raise ValueError(
            "contains a host with a letter such as \u00df, which is another host for some programs: write its ASCII form, such as "
            "xn--strae-oqa.example"
        )


def require_template(url: str, placeholder: str, example: str) -> None:
    """Require an http URL with the placeholder.

    Raises:
        ValueError: it is something else.
    """
    require_scheme(url, ("http", "https"), example)
    if url.count(placeholder) > 1:
        raise ValueError(f"must contain {placeholder} exactly once, such as {example}")
    parts = urlsplit(url)
    if not parts.hostname or "{" in parts.netloc or placeholder in parts.fragment:
        raise ValueError(f"must contain a host, with {placeholder} in the path or the query")


def require_known_options(url: str) -> None:
    """Require options in the query that the Redis client supports.

    Raises:
        ValueError: it is something else.
    """
    # Slow, so imported only when needed, because `ingest health` runs every few seconds.
    from redis.asyncio import ConnectionPool, SSLConnection  # noqa: PLC0415
    from redis.exceptions import RedisError  # noqa: PLC0415

    try:
        # Creating a connection object and its TLS context is the only check available. Files are checked separately.
        pool = ConnectionPool.from_url(url)
        options = {name: value for name, value in pool.connection_kwargs.items() if name not in _FILE_OPTIONS}
        connection = pool.connection_class(**options)
        if isinstance(connection, SSLConnection):
            connection.ssl_context.get()
    except (ValueError, TypeError, AttributeError, OSError, RedisError):
        raise ValueError("contains an option that is unknown to the Redis client, or has an invalid value") from None
    for option in ("socket_timeout", "socket_connect_timeout"):
        if (seconds := options.get(option)) is not None and not seconds > 0:  # it may be NaN
            raise ValueError(f"contains a {option} that is not greater than 0")


def require_encoded_password(url: str) -> None:
    """Require a password whose special characters are encoded.

    Raises:
        ValueError: it is something else.
    """
    parts = split_hosts(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("contains / ? or # in its password: write %2F %3F %23 instead")


def require_files(url: str) -> None:
    """Require usable files of certificates and keys, because a failing connection would not name the file.

    Raises:
        ValueError: a file cannot be used.
    """
    options = dict(parse_qsl(urlsplit(url).query))
    files = [(option, name) for option, name in options.items() if option in _FILE_OPTIONS]
    for option, name in files:
        try:
            open_regular(Path(name)).close()
        except OSError as error:
            raise ValueError(f"contains a {option} that cannot be read: {name} ({error.strerror})") from None
    if files:
        _require_certificates(options)


def _require_certificates(options: dict[str, str]) -> None:
    # `ingest health` runs every few seconds, mostly without such files.
    import ssl  # noqa: PLC0415

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for option in _AUTHORITIES:
        if (name := options.get(option)) is not None:
            try:
                context.load_verify_locations(name)
            except ssl.SSLError:
                raise ValueError(f"contains a {option} without certificates in PEM format: {name}") from None
    if "ssl_keyfile" in options and "ssl_certfile" not in options:
        raise ValueError("contains a key in ssl_keyfile, but no certificate in ssl_certfile")
    if "ssl_certfile" in options:
        # Redis' client reads both from one file. PostgreSQL's client reads another file by default.
        options.setdefault("ssl_keyfile", options["ssl_certfile"])
    for cert, key, password in _PAIRS:
        if cert in options and key in options:
            try:
                # Without a password, OpenSSL would prompt for one on the terminal.
                context.load_cert_chain(options[cert], options[key], options.get(password, ""))
            except ssl.SSLError:
                raise ValueError(
                    f"contains a {cert} and a {key} that are not a certificate and its key in PEM format, or the key needs "
                    f"a password: {options[cert]}, {options[key]}"
                ) from None
