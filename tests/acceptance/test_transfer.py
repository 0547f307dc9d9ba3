"""A deployment moves from a single Redis to a cluster by its settings, and takes its dead letters and its pause along."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from acceptance.queued import Queued
from cluster_set import ClusterSet
from dead_letter_entries import dead_fields
from redis import Redis
from servers.kinds import KINDS
from support import Cli

from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import control_client

ORDERS = [f"order-{number}" for number in range(60)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterSet]:
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0) as cluster, ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, cluster.become_ready()).result()
        yield cluster


async def test_dead_letters_erased_orders_and_a_pause_move_to_a_cluster(
    cli: Cli, queued: Queued, queue_name: str, cluster: ClusterSet, tmp_path: Path
) -> None:
    previous, layout = tmp_path / "previous", Layout(queue_name, 6)
    previous.write_text(cli.env["INGEST_REDIS_URL"] + "\n")
    for order_id in ORDERS:
        queued.dead_letter(order_id)
    queued.redis.zadd(queued.keys.erased, {ORDERS[0]: 1})
    waiting = queued.redis.xadd(queued.keys.stream, {"order_id": "waiting"})
    assert cli.run("pause", "--reason", "stock-taking").returncode == 0
    cli.env |= {"INGEST_REDIS_URL": cluster.url(), "INGEST_PARTITIONS": "6"}

    first = cli.run("partitions", "transfer", str(previous))
    queued.redis.xdel(queued.keys.stream, waiting)
    again = cli.run("partitions", "transfer", "-", "--json", stdin=previous.read_text())
    status = cli.run("status", "--json")

    assert first.returncode == 1
    assert first.stdout.splitlines() == [
        "the source is paused, like in the previous Redis",
        f"{queue_name}: 59 dead letters moved",
    ]
    assert f"{queue_name}: 1 order left in the previous Redis" in first.stderr
    assert (again.returncode, json.loads(again.stdout)) == (
        0,
        {"paused": [], "sources": [{"source": "", "moved": 0, "remaining": 0}]},
    )
    assert "stock-taking" in status.stdout
    assert queued.redis.xlen(queued.keys.dead) == 0
    async with control_client(cluster.url()) as client:
        for queue in layout.current:
            found = [fields[b"order_id"].decode() for _, fields in await client.xrange(Keys.of(queue).dead)]
            assert found == [each for each in ORDERS[1:] if layout.queue_of_order(each) == queue]
            assert await client.exists(Keys.of(queue).dead_moved) == 0
        erased = Keys.of(layout.queue_of_order(ORDERS[0])).erased
        assert await client.zscore(erased, ORDERS[0]) == 1


def test_a_transfer_from_the_configured_redis_is_rejected(cli: Cli, queued: Queued) -> None:
    queued.dead_letter("a")

    done = cli.run("partitions", "transfer", "-", stdin=cli.env["INGEST_REDIS_URL"])

    assert done.returncode == 1
    assert "the URL leads to the Redis that is configured" in done.stderr
    assert queued.redis.xlen(queued.keys.dead) == 1
    assert queued.redis.hgetall(f"ingest:{{{queued.keys.dead.split('{')[1].split('}')[0]}}}:partitions") == {}


def test_a_transfer_needs_a_url(cli: Cli, tmp_path: Path) -> None:
    missing = cli.run("partitions", "transfer", str(tmp_path / "missing"))
    empty = cli.run("partitions", "transfer", "-")

    assert (missing.returncode, empty.returncode) == (2, 2)
    assert "cannot read the URL" in missing.stderr
    assert "contains no URL" in empty.stderr


def test_a_dead_letter_with_all_its_fields_is_transferred(cli: Cli, queued: Queued, tmp_path: Path) -> None:
    with KINDS[0].server(tmp_path / "server") as server, Redis.from_url(server.url) as redis:
        fields = dead_fields("a", document="{}", other="kept")
        entry_id = redis.xadd(queued.keys.dead, fields)  # type: ignore[arg-type]
        done = cli.run("partitions", "transfer", "-", stdin=f" {server.url}\n")

        assert done.returncode == 0
        assert redis.xlen(queued.keys.dead) == 0

    [(_, moved)] = queued.redis.xrange(queued.keys.dead)  # type: ignore[union-attr]
    identity = queued.keys.dead.split("{")[1].split("}")[0].encode() + b" " + entry_id  # type: ignore[operator]
    assert moved == fields | {b"ingest_moved_from": identity}
