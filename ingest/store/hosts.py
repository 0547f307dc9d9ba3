"""Splits a DSN with several hosts."""

from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit


def single_hosts(dsn: str) -> list[tuple[str, str]]:
    """Return the hosts in the DSN's authority or options, each with its own DSN."""
    parts = urlsplit(dsn)
    account, at, hosts = parts.netloc.rpartition("@")
    if hosts:
        return [(host, urlunsplit(parts._replace(netloc=f"{account}{at}{host}"))) for host in hosts.split(",")]
    options = parse_qsl(parts.query, keep_blank_values=True)
    others = [(name, value) for name, value in options if name not in {"host", "port"}]
    names = dict(options).get("host", "").split(",")
    ports = dict(options).get("port", "").split(",")
    if len(ports) == 1:
        ports *= len(names)
    if len(names) == 1 or len(names) != len(ports):
        return [("", dsn)]  # the client library reports a mismatch
    return [
        (f"{name}:{port}" if port else name, _with_options(parts, [("host", name), ("port", port), *others]))
        for name, port in zip(names, ports, strict=True)
    ]


def _with_options(parts: SplitResult, options: list[tuple[str, str]]) -> str:
    return urlunsplit(
        parts._replace(query=urlencode([(name, value) for name, value in options if value], quote_via=quote))
    )
