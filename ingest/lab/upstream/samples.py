"""Loads the bundled real orders."""

import gzip
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType


@cache
def sample_orders() -> Mapping[str, bytes]:
    """Return the 10,000 bundled orders by ID, each the JSON bytes of its line, in the order of the file."""
    packed = (files("ingest") / "lab" / "data" / "orders.jsonl.gz").read_bytes()
    return MappingProxyType({_order_id(line): line for line in gzip.decompress(packed).splitlines()})


def _order_id(line: bytes) -> str:
    """Cut the ID out of the beginning of a line, which is ten times faster than decoding 20 MB."""
    return line[len(b'{"id":"') : line.index(b'"', len(b'{"id":"'))].decode()
