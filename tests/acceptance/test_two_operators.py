"""Several operators change the number of partitions of a queue at the same time, and their commands are killed and interrupted."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cluster_set import ClusterSet
from dead_letter_entries import dead_fields
from redis.asyncio import Redis
from servers.kinds import KINDS
from support import Cli, Process, eventually

from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import layout_key
from ingest.queue.redis.connection import control_client

ORDERS = [f"order-{number}" for number in range(400)]
pytestmark = pytest.mark.timeout(240)


@pytest.fixture(params=["standalone", "cluster"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "standalone":
        with KINDS[0].server(tmp_path / "server") as server:
            yield server.url
        return
    with ClusterSet.open(KINDS[0], tmp_path, replicas=0) as cluster, ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, cluster.become_ready()).result()
        yield cluster.url()


@pytest.fixture
async def redis(url: str, cli: Cli) -> AsyncIterator[Redis]:
    cli.env |= {"INGEST_REDIS_URL": url, "INGEST_STREAM": "orders"}
    async with control_client(url) as client:
        for order_id in ORDERS:
            await client.xadd(Keys.of("orders").dead, dead_fields(order_id))  # type: ignore[arg-type]
        yield client


async def dead(redis: Redis, queue: str) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(Keys.of(queue).dead)]


async def each_is_dead_once(redis: Redis, partitions: int) -> None:
    """Each order is a dead letter once, in its partition."""
    layout = Layout("orders", partitions)
    found = {queue: await dead(redis, queue) for queue in (*layout.current, *layout.others)}
    counts = Counter(order for orders in found.values() for order in orders)
    assert counts == Counter(ORDERS), f"{counts.total()} dead letters of {len(counts)} orders"
    for queue, orders in found.items():
        assert {layout.queue_of_order(order) for order in orders} <= {queue}


async def a_dead_letter_has_moved(redis: Redis) -> bool:
    return any([await redis.xlen(Keys.of(f"orders:{number}").dead) for number in range(8)])


async def is_changed_by(redis: Redis, command: Process) -> bool:
    """Whether this command changes the partitions now."""
    holder = await redis.hget(layout_key("orders"), "holder")  # type: ignore[misc]
    return bool(holder and holder.decode().endswith(f"-{command.pid}"))


async def ends(command: Process) -> str:
    await eventually(lambda: command.poll() is not None)
    output, errors = command.communicate()
    assert command.returncode == 0, errors
    return output


async def test_commands_that_change_the_partitions_at_once_move_each_dead_letter_once(redis: Redis, cli: Cli) -> None:
    waiting = await redis.xadd(Keys.of("orders").stream, {"order_id": "waiting"})

    killed = cli.start("partitions", "set", "8")
    await eventually(lambda: is_changed_by(redis, killed))
    interrupted = cli.start("partitions", "set", "3")
    await eventually(lambda: a_dead_letter_has_moved(redis))
    killed.kill()
    third = cli.start("partitions", "set", "8")
    await eventually(lambda: is_changed_by(redis, interrupted))
    interrupted.send_signal(signal.SIGINT)
    await redis.xdel(Keys.of("orders").stream, waiting)
    _, shown = interrupted.communicate()
    assert "is changing the partitions to 8: this command continues when that one ends" in shown
    await ends(third)
    await each_is_dead_once(redis, 8)

    changed = [cli.start("partitions", "set", number, "--json") for number in ("3", "3")]
    results = [json.loads(await ends(each)) for each in changed]

    assert [(each["partitions"], each["former"]) for each in results] == [(3, [])] * 2
    await each_is_dead_once(redis, 3)


@pytest.mark.parametrize("cause", [signal.SIGKILL, signal.SIGINT])
async def test_a_change_that_ends_halfway_and_is_followed_by_another_moves_each_dead_letter_once(
    redis: Redis, cli: Cli, cause: signal.Signals
) -> None:
    halfway = cli.start("partitions", "set", "8")
    await eventually(lambda: a_dead_letter_has_moved(redis), every=0.001)
    halfway.send_signal(cause)
    halfway.communicate()

    await ends(cli.start("partitions", "set", "3"))

    await each_is_dead_once(redis, 3)


async def test_a_command_that_was_frozen_moves_no_dead_letter_after_another_command_has_taken_over(
    redis: Redis, cli: Cli
) -> None:
    frozen = cli.start("partitions", "set", "8")
    await eventually(lambda: a_dead_letter_has_moved(redis), every=0.001)
    frozen.send_signal(signal.SIGSTOP)
    await ends(cli.start("partitions", "set", "3"))

    frozen.send_signal(signal.SIGCONT)
    await eventually(lambda: frozen.poll() is not None)

    _, errors = frozen.communicate()
    assert frozen.returncode == 1, errors
    assert "changed the partitions" in errors
    await each_is_dead_once(redis, 3)
