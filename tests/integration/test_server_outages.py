"""An outage of PostgreSQL or Redis: no attempt is used up, no live worker counts as dead, and work resumes by itself."""

import asyncio
import itertools
from urllib.parse import urlsplit

import pytest
from integration.scene import Scene, ids
from integration.watching import all_stored_at_the_first_attempt, is_open, nothing_is_blamed, throughout
from support import eventually

from ingest.lab.servers import EmbeddedServers

ORDERS = ids(300)


async def test_in_an_outage_of_postgresql_reading_stops_the_circuit_stays_closed_and_no_attempt_is_used_up(
    fragile: Scene, own_servers: EmbeddedServers
) -> None:
    async with (
        fragile.worker("a", concurrency=10, batch_rows=20) as a,
        fragile.worker("b", concurrency=10, batch_rows=20) as b,
    ):
        await asyncio.to_thread(own_servers.postgres.stop, "immediate")
        await fragile.enqueue(*ORDERS)
        most = 2 * (10 + 20)

        async def full() -> bool:
            # The backlog lets each of them read a few ahead.
            pending = await fragile.pending_count()
            return most <= pending <= most + 2 * (10 // 4) and fragile.api.stats().requests == most

        await eventually(full)

        async def as_it_is() -> None:
            await nothing_is_blamed(fragile)
            assert await full()
            assert [is_open(a), is_open(b)] == [False, False]

        # Longer than a heartbeat and a lease.
        await throughout(4.0, as_it_is)
        await asyncio.to_thread(own_servers.postgres.start)
        await all_stored_at_the_first_attempt(fragile, ORDERS)
        assert fragile.api.stats().requests == len(ORDERS), "each was asked for once"
        assert sum(w.metric("ingest_redeliveries_total", reason="dead_consumer") for w in (a, b)) == 0


@pytest.mark.parametrize("way", ["stop", "kill"])
async def test_after_an_outage_of_redis_longer_than_all_heartbeats_nobody_is_taken_for_dead(
    fragile: Scene, own_servers: EmbeddedServers, way: str
) -> None:
    fragile.api.behave(latency="9")
    order_ids = ids(40)
    await fragile.enqueue(*order_ids)

    # With free slots, so that both look for abandoned orders, and with enough time to connect again on a
    # machine that is busy.
    settings = {"heartbeat_ttl": 2, "claim_idle": 3, "concurrency": 30}
    async with fragile.worker("a", **settings) as a, fragile.worker("b", **settings) as b:
        await eventually(lambda: fragile.api.stats().requests == len(order_ids))
        await asyncio.to_thread(getattr(own_servers.valkey, way))
        # Longer than a lease, and than two heartbeats.
        await throughout(5.0, lambda: asyncio.sleep(0))
        await asyncio.to_thread(own_servers.valkey.start)
        await all_stored_at_the_first_attempt(fragile, order_ids)

        for worker, reason in itertools.product((a, b), ("dead_consumer", "idle")):
            assert worker.metric("ingest_redeliveries_total", reason=reason) == 0
    assert fragile.api.stats().by_id == dict.fromkeys(order_ids, 1)


async def test_a_right_that_redis_revokes_for_a_while_is_no_orders_fault_either(
    fragile: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    async def limited(*rules: str) -> None:
        await fragile.redis.execute_command("ACL", "SETUSER", "limited", *rules)

    await limited("reset", "on", ">pw", "~*", "+@all")
    server = urlsplit(fragile.redis_url)
    url = f"redis://limited:pw@{server.hostname}:{server.port}/0"
    scene = Scene(fragile.redis, url, fragile.dsn, fragile.queue, fragile.api)
    async with scene.worker(concurrency=10) as worker:
        await fragile.enqueue(*ORDERS[:100])
        await fragile.stored_at_least(100)
        await fragile.finished()
        await limited("-xack")
        await fragile.enqueue(*ORDERS[100:])
        await fragile.stored_at_least(110)

        async def as_it_is() -> None:
            await nothing_is_blamed(fragile)
            assert await fragile.pending_count() > 0, "stored, and not acked"
            assert not worker.task.done()

        # Longer than a heartbeat.
        await throughout(2.0, as_it_is)
        await limited("-@all")
        await throughout(2.0, as_it_is)
        await limited("+@all")
        await all_stored_at_the_first_attempt(fragile, ORDERS)
    await fragile.redis.execute_command("ACL", "DELUSER", "limited")
    told = [line for line in capsys.readouterr().out.splitlines() if " access_denied " in line]
    assert told
    assert all("[error " in line for line in told), "a person is needed"
