"""Addresses of several Redis servers in one URL, and addresses behind NAT."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import SplitResult, urlsplit

# The option with an address that differs from the reported one. It may be repeated.
NAT_OPTION = "nat"

_URL = re.compile(r"([^:/?#]+)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#(.*))?", re.DOTALL)

Address = tuple[str, int]


def split_hosts(url: str) -> SplitResult:
    """Split a URL, which may contain several hosts. `urlsplit` rejects an IPv6 address behind another host.

    Raises:
        ValueError: it is not a URL.
    """
    parts = _URL.fullmatch(url)
    if parts is None:
        return urlsplit(url)
    scheme, netloc, path, query, fragment = parts.groups(default="")
    if "," not in netloc:
        return urlsplit(url)
    return SplitResult(scheme.lower(), netloc, path, query, fragment)


def address_text(address: Address) -> str:
    """Return an address as `host:6379` or `[::1]:6379`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def addresses_of(hosts: str, default_port: int, wrong: str) -> tuple[Address, ...]:
    """Return the addresses in a list such as `host1,host2:7000,[::1]:7000`.

    Raises:
        ValueError: one of them is invalid, with `wrong` as its text.
    """
    return tuple(_address_of(host, default_port, wrong) for host in hosts.split(","))


def reached_at(options: Iterable[tuple[str, str]]) -> Mapping[Address, Address]:
    """Return where to connect, by the reported address, from the options of a URL.

    Raises:
        ValueError: one of them is invalid.
    """
    return dict(_mapping_of(value) for name, value in options if name == NAT_OPTION)


def _mapping_of(value: str) -> tuple[Address, Address]:
    wrong = "must contain nat=REPORTED:PORT,REACHED:PORT with the reported address and the one to connect to"
    reported, comma, reached = value.partition(",")
    if not comma:
        raise ValueError(wrong)
    return _address_of(reported, None, wrong), _address_of(reached, None, wrong)


def _address_of(text: str, default_port: int | None, wrong: str) -> Address:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(wrong) from None
    port = port if port is not None else default_port
    if not host or not port or parts.username is not None or parts.path:
        raise ValueError(wrong)
    return host, port
