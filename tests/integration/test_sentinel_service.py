"""The service on a Redis that Sentinels watch, whose primary is killed while a worker processes orders."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from integration.scene import Scene, assert_right, ids
from sentinel_set import SERVICE, SentinelSet
from servers.kinds import KINDS, Kind
from support import Cli, eventually

from ingest.domain.errors import QueueUnavailable
from ingest.lab.upstream import Behaviour
from ingest.queue.produce.producer import Producer


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_worker_stores_every_order_although_the_primary_is_killed(
    kind: Kind, dsn: str, queue_name: str, cli: Cli
) -> None:
    order_ids = ids(200)
    with TemporaryDirectory(prefix="ingest-") as folder, SentinelSet.open(kind, Path(folder)) as watched:
        await watched.become_ready()
        primary = await watched.primary()
        slow = Behaviour(any_id=True, latency="0.1-0.2")
        async with Scene.open(watched.url(), dsn, queue_name, slow) as scene, scene.worker():
            async with Producer.connect(watched.url(), queue_name) as producer:
                await producer.enqueue(order_ids[:150])
                await watched.replicate()
                await eventually(scene.pending_count)

                primary.kill()
                await producer.enqueue(order_ids[150:])

            await eventually(lambda: _is_finished(scene), within=60)
            assert_right(await scene.rows(), order_ids)
            assert await scene.dead() == []

        env = {
            "INGEST_REDIS_URL": f"redis+sentinel://{watched.hosts}/{SERVICE}/0",
            "INGEST_REDIS_PASSWORD": primary.password,
            "INGEST_REDIS_SENTINEL_PASSWORD": watched.sentinels[0].password,
        }
        status = await asyncio.to_thread(cli.run, "status", "--json", env=env)
        assert '"stored": 200' in status.stdout, status.stderr
        examined = await asyncio.to_thread(cli.run, "doctor", env=env)
        assert "appendonly is off" in examined.stdout, examined.stdout
        wrong = await asyncio.to_thread(cli.run, "status", env={**env, "INGEST_REDIS_SENTINEL_PASSWORD": "wrong"})
        assert wrong.returncode == 1
        assert "Sentinel 127.0.0.1" in wrong.stdout + wrong.stderr
        assert "Traceback" not in wrong.stderr


async def _is_finished(scene: Scene) -> bool:
    try:
        return not await scene.pending_count() and await scene.is_finished()
    except (QueueUnavailable, OSError):
        return False
