"""The servers that a test of the queue runs on, and the HTTP clients of a test of the external API.

All kinds of Redis run the same scripts. They differ in commands, rights and limits, whose tests are marked `each_server`. Any other test
runs on one kind, and in one kind of cluster, chosen by its name. aiohttp is used for proxies, so that only tests of proxies, TLS and the port `Transport` run with it as well, which are
marked `each_client`. Variants of a promise that
`make test` proves once are marked `nightly`. `INGEST_TEST_NIGHTLY=on`, which `make nightly` sets, runs all tests everywhere.
"""

import os
import zlib
from collections.abc import Sequence
from typing import TypeVar

import pytest
from servers.kinds import KINDS, Kind
from topologies import CLUSTERS, SENTINEL, STANDALONE, Place

T = TypeVar("T")


def selected(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests to run."""
    if os.environ.get("INGEST_TEST_NIGHTLY") == "on":
        return [*items]
    return [item for item in items if not isinstance(item, pytest.Function) or _runs(item)]


def _runs(item: pytest.Function) -> bool:
    if item.get_closest_marker("nightly"):
        return False
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    name = item.nodeid.partition("[")[0]
    names_kinds = any(marker.args[0] == "kind" for marker in item.iter_markers("parametrize"))
    on_each = names_kinds or item.get_closest_marker("each_server") is not None
    match parameters:
        case {"implementation": Place(topology="cluster") as place}:
            return place == _one_of(CLUSTERS, name)
        case {"implementation": Place() as place}:
            return place in STANDALONE if on_each else place == _one_of((*STANDALONE, SENTINEL), name)
        case {"topology": "cluster", "kind": Kind() as kind}:
            return kind == _one_of(KINDS, name)
        case {"kind": "aiohttp"}:
            return names_kinds or item.get_closest_marker("each_client") is not None
        case {"kind": Kind() as kind}:
            return on_each or kind == _one_of(KINDS, name)
    return True


def _one_of(values: Sequence[T], name: str) -> T:
    return values[zlib.crc32(name.encode()) % len(values)]
