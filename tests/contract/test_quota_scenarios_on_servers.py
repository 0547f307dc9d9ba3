"""Processes that share a quota never exceed it, in random scenarios with the real scripts on each server.

The scripts take the time of the queue's last call if the server's clock is behind it. Each call sets that time to the virtual time of the
scenario, which is far in the future.
"""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from fakes.virtual_time import now
from quota_scenarios import Connect, Network, play, seeds
from redis import Redis

from ingest.domain.fetch.quota import QuotaLimits
from ingest.queue.consume.quota import FleetQuotaClient, quota_key
from ingest.queue.redis.scripts import script_text
from ingest.queue.redis.topology.standalone import StandaloneTopology

_FUTURE = 3_000_000_000_000


class DistantScripts:
    """Calls of scripts behind a network. A call takes no time on the server."""

    def __init__(self, redis: Redis, network: Network) -> None:
        self._redis = redis
        self._network = network

    async def call(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await self._network.call(lambda: self._run(script, keys[0], arguments))

    def _run(self, script: str, key: str, arguments: Sequence[Any]) -> Any:
        pipe = self._redis.pipeline(transaction=False)
        pipe.hdel(key, "ahead", "noted_at")
        pipe.hset(key, "latest", _FUTURE + int(1000 * now()))
        pipe.eval(script_text(script, has_xnack=False), 1, key, *arguments)
        return pipe.execute()[-1]


@pytest.mark.parametrize("seed", seeds(usually=20))
def test_the_processes_of_a_scenario_keep_the_quota_on_a_server(seed: int, redis_url: str, queue_name: str) -> None:
    with Redis.from_url(redis_url) as redis:

        def serve(limits: QuotaLimits) -> Connect:
            def connect(network: Network) -> FleetQuotaClient:
                calls = cast("Any", DistantScripts(redis, network))
                return FleetQuotaClient(calls, quota_key(queue_name), limits, StandaloneTopology(redis_url).confirm)

            return connect

        outcome = play(seed, serve)

    assert outcome.keeps_the_quota, outcome
    assert outcome.begun
