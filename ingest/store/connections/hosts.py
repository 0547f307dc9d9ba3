"""Splits a DSN with several hosts."""

from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit


def single_hosts(dsn: str) -> list[tuple[str, str]]:
    """Return the hosts in the DSN's authority or options, each with its own DSN."""
    parts = urlsplit(dsn)
    account, at, hosts = parts.netloc.rpartition("@")
    if hosts:
        return [(host, urlunsplit(parts._replace(netloc=f"{account}{at}{host}"))) for host in hosts.split(",")]
    given = parse_qsl(parts.query, keep_blank_values=True)
    others = [(name, value) for name, value in given if name not in {"host", "port"}]
    names = dict(given).get("host", "").split(",")
    ports = dict(given).get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(names)
    if len(names) == 1 or len(names) != len(ports):
        return [("", dsn)]  # the client library reports a mismatch
    found = []
    for host, port in zip(names, ports, strict=True):
        options = [(name, value) for name, value in (("host", host), ("port", port), *others) if value]
        query = urlencode(options, quote_via=quote)
        found.append((f"{host}:{port}" if port else host, urlunsplit(parts._replace(query=query))))
    return found
