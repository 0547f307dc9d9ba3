"""The URL of a cluster, the keys of commands, and the pace of lookups."""

import asyncio
from typing import Any

import pytest

from ingest.domain.masking import mask_url
from ingest.domain.redis_urls.cluster_url import is_cluster_url, parse_cluster_url
from ingest.domain.redis_urls.sentinel_url import parse_sentinel_url
from ingest.queue.redis.connection import translated
from ingest.queue.redis.routing import first_key
from ingest.queue.redis.topology.slot_map import SlotMap

NOWHERE = parse_cluster_url("redis+cluster://127.0.0.1:1")


def test_a_url_names_nodes_account_and_options() -> None:
    url = parse_cluster_url(
        "rediss+cluster://u:p%40@h1:7000,h2/0?ssl_cert_reqs=none&nat=10.0.0.1:6379,h1:7001&nat=10.0.0.2:6379,h1:7002"
    )

    assert url.nodes == (("h1", 7000), ("h2", 6379))
    assert url.redis_url == "rediss://u:p%40@h1:7000/0?ssl_cert_reqs=none"
    assert url.reached_at == {("10.0.0.1", 6379): ("h1", 7001), ("10.0.0.2", 6379): ("h1", 7002)}
    assert is_cluster_url("REDIS+cluster://h1")
    assert not is_cluster_url("redis://h1")


def test_hosts_may_be_ipv6_addresses() -> None:
    hosts = "h1,[2001:db8::1]:7000,[2001:db8::2]"

    nodes = parse_cluster_url(f"redis+cluster://:p@{hosts}").nodes
    sentinels = parse_sentinel_url(f"redis+sentinel://:p@{hosts}/orders/0?nat=[2001:db8::3]:1,[::1]:2")

    assert nodes == (("h1", 6379), ("2001:db8::1", 7000), ("2001:db8::2", 6379))
    assert sentinels.sentinels == (("h1", 26379), ("2001:db8::1", 7000), ("2001:db8::2", 26379))
    assert sentinels.reached_at == {("2001:db8::3", 1): ("::1", 2)}
    assert mask_url(f"redis+cluster://u:p@{hosts}?db=0") == f"redis+cluster://u:***@{hosts}?db=0"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+cluster://", "hosts of nodes"),
        ("redis+cluster://h1,", "hosts of nodes"),
        ("redis+cluster://h1:x", "hosts of nodes"),
        ("redis+cluster://h1,[::1", "hosts of nodes"),
        ("redis+cluster://h1/1", "only database 0"),
        ("redis+cluster://h1?db=2", "only database 0"),
        ("redis+cluster://h1?nat=10.0.0.1:6379", "nat=REPORTED:PORT,REACHED:PORT"),
    ],
)
def test_an_invalid_url_is_rejected_with_its_problem(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_cluster_url(url)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("EVALSHA", "0" * 40, 2, "k1", "k2", "a"), "k1"),
        (("EVAL", "return 1", "0"), None),
        (("XREADGROUP", "GROUP", "STREAMS", "streams", "COUNT", 1, b"STREAMS", "k1", "k2", ">", ">"), "k1"),
        (("XREAD", "STREAMS", b"k1", "0"), b"k1"),
        (("XINFO CONSUMERS", "k1", "g"), "k1"),
        (("XGROUP", "CREATE", "k1", "g", "0"), "k1"),
        ((b"MEMORY", "USAGE", "k1"), "k1"),
        (("xadd", "k1", "*", "a", "b"), "k1"),
        (("CONFIG GET", "append*"), None),
        (("INFO",), None),
        (("WAIT", 1, 100), None),
        (("SCAN", 0), None),
    ],
)
def test_a_command_is_routed_by_its_first_key(command: tuple[Any, ...], key: str | bytes | None) -> None:
    assert first_key(command) == key


async def test_lookups_are_delayed_longer_while_no_node_responds() -> None:
    pauses: list[float] = []

    def recorded(shortest: float, longest: float) -> float:
        if shortest:
            pauses.append(longest)
        return 0.0

    slots = SlotMap(NOWHERE, recorded)
    for _ in range(8):
        with pytest.raises(Exception, match=r"node 127\.0\.0\.1:1"), translated():
            await slots.find(0)

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_connections_that_look_for_a_node_at_the_same_time_share_a_lookup() -> None:
    lookups: list[float] = []

    def recorded(shortest: float, longest: float) -> float:
        if shortest:
            lookups.append(longest)
        return 0.0

    slots = SlotMap(NOWHERE, recorded)
    failures = await asyncio.gather(*(slots.find(slot) for slot in range(4)), return_exceptions=True)
    await asyncio.gather(*(slots.find(slot) for slot in range(4)), return_exceptions=True)

    assert all(isinstance(each, Exception) for each in failures)
    assert lookups == [0.05]


async def test_a_node_that_has_failed_comes_last() -> None:
    slots = SlotMap(NOWHERE)
    nodes = [("127.0.0.1", 2), ("127.0.0.1", 3)]
    for slot, node in enumerate(nodes):
        slots.moved(slot, node)
    assert await slots.find(0) == nodes[0]

    slots.suspect(nodes[0])

    # No node responds, so that the map stays as it is.
    with pytest.raises(Exception, match=r"^node 127\.0\.0\.1:3"), translated():
        await slots.find(0)
    assert await slots.find(1) == nodes[1]
