"""The parts that all benches use."""

from ingest.bench.stage import Servers, stage


def test_entries_of_both_lanes_are_queued_and_those_of_the_retry_set_wait(redis_url: str, dsn: str) -> None:
    with stage(Servers(redis_url, dsn)) as on:
        keys = on.keys()
        on.redis.xadd(keys.stream, {"order_id": "1"})
        on.redis.xadd(keys.express, {"order_id": "2"})
        on.redis.zadd(keys.retry, {"3": 1.0})

        queued = on.queued()

    assert queued == (2, 1)
