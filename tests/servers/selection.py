"""The variants of a test that `make test` runs. `INGEST_TEST_NIGHTLY=on`, which `make nightly` sets, runs all of them.

All kinds of Redis run the same scripts. They differ in commands (a release is XNACK or XCLAIM), rights and limits, whose tests are marked
`each_server`. Any other test of the queue runs on one kind, and in a cluster of Valkey or of the newest Redis, chosen by its name. aiohttp
is used for proxies, so that only tests of proxies, TLS and the port `Transport` run with each client, which are marked `each_client`. A test
of the store runs with each way of connecting and each form of the table, but not with each pair. Further variants are marked `nightly`.
"""

import os
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from servers.kinds import KINDS, Kind
from topologies import CLUSTERS, SENTINEL, STANDALONE, Place


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
    # The suites in tests/contract prove that the kinds behave alike. Workers in tests/integration need one of them.
    on_each = item.get_closest_marker("each_server") is not None or (
        names_kinds and item.path.parent.name != "integration"
    )
    match parameters:
        case {"implementation": Place(topology="cluster") as place}:
            return place == _one_of((CLUSTERS[0], CLUSTERS[-1]), name)
        case {"implementation": Place() as place}:
            return place in STANDALONE if on_each else place == _one_of((*STANDALONE, SENTINEL), name)
        case {"topology": "cluster", "kind": Kind() as kind}:
            return kind == _one_of((KINDS[0], KINDS[-1]), name)
        case {"store": "direct" | "pooled" as way, "either_dsn": "plain" | "partitioned" as table}:
            return ((way == "direct") == (table == "plain")) == _one_of((True, False), name)
        case {"kind": "aiohttp"}:
            return names_kinds or item.get_closest_marker("each_client") is not None
        case {"kind": Kind() as kind} | {"pair": Kind() as kind} | {"managed": (Kind() as kind, "redis")}:
            return on_each or kind == _one_of(KINDS, name)
        case {"redis_url": Kind() as kind} | {"scene": Kind() as kind}:
            return on_each or kind == _one_of(KINDS, name)
    return True


def _one_of(values: Sequence[Any], name: str) -> Any:
    return values[zlib.crc32(name.encode()) % len(values)]
