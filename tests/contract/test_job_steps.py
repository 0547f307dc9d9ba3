"""The steps of a job on real servers. Each changes its entries and is recorded once, even when it is sent again."""

import asyncio

import msgspec
import pytest
from dead_letter_entries import dead_fields
from redis.asyncio import Redis
from support import eventually

from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.job_steps import JobSteps, StepRecord

pytestmark = pytest.mark.topologies


@pytest.fixture
def steps(redis: Redis, queue_name: str) -> JobSteps:
    return JobSteps(redis, queue_name, 7)


async def add(redis: Redis, keys: Keys, *order_ids: str) -> list[str]:
    return [(await redis.xadd(keys.dead, dead_fields(order_id))).decode() for order_id in order_ids]  # type: ignore[arg-type]


async def test_a_step_that_is_sent_again_is_neither_run_nor_counted_again(
    steps: JobSteps, redis: Redis, keys: Keys
) -> None:
    a, b, c = await add(redis, keys, "a", "b", "c")
    await steps.begin(StepRecord())
    first = await steps.change(JobKind.REPLAY, [a, b], b)
    [moved, _] = await redis.xrange(keys.express)
    # As if the order had failed again under the same ID.
    await redis.xadd(keys.express, moved[1])

    assert await steps.change(JobKind.REPLAY, [a, b], b) == first == StepRecord(b, 2, 0)
    assert await steps.change(JobKind.REPLAY, [a, c], c) == StepRecord(c, 3, 1)
    assert [fields[b"order_id"] for _, fields in await redis.xrange(keys.express)] == [b"a", b"b", b"a", b"c"]
    assert await redis.xlen(keys.dead) == 0


async def test_another_process_continues_from_the_record_or_else_from_what_it_knows(
    steps: JobSteps, redis: Redis, keys: Keys, queue_name: str
) -> None:
    known = StepRecord("5-0", 40, 2)
    assert await steps.begin(known) == known
    [a] = await add(redis, keys, "a")
    await steps.change(JobKind.DROP, [a], a)

    other = JobSteps(redis, queue_name, 7)

    assert await other.begin(known) == StepRecord(a, 41, 2)
    assert await JobSteps(redis, queue_name, 8).begin(StepRecord()) == StepRecord()
    assert await redis.ttl(f"{keys.records}job:7") > 86_400
    await other.forget()
    assert await redis.pttl(f"{keys.records}job:7") <= 1_000


async def test_steps_of_retries_run_them_now_or_dead_letter_them(steps: JobSteps, redis: Redis, keys: Keys) -> None:
    for number in range(3):
        fields = ["order_id", f"o{number}", "attempt", "2"]
        await redis.hset(keys.retry_entries, f"{number}-0", msgspec.msgpack.encode(fields))  # type: ignore[arg-type]
        await redis.zadd(keys.retry, {f"{number}-0": 9_000_000_000_000.0 + number})

    assert await steps.change(JobKind.RUN_NOW, [b"0-0", b"1-0", b"gone"], "9000000000001 1") == StepRecord(
        "9000000000001 1", 2, 1
    )
    assert await redis.zcount(keys.retry, 0, 8_000_000_000_000) == 2
    assert await steps.change(JobKind.DEAD_LETTER, [b"1-0", b"2-0"], "9000000000002 2", "me") == StepRecord(
        "9000000000002 2", 4, 1
    )
    assert [fields[b"order_id"] for _, fields in await redis.xrange(keys.dead)] == [b"o1", b"o2"]


@pytest.mark.each_server
@pytest.mark.topologies("standalone")
async def test_a_full_redis_holds_up_a_replay_and_not_a_drop(own_redis: Redis, queue_name: str) -> None:
    reasons: list[str] = []
    keys, steps = Keys.of(queue_name), JobSteps(own_redis, queue_name, 7, on_wait=reasons.append)
    a, b = await add(own_redis, keys, "a", "b")
    await steps.begin(StepRecord())
    await own_redis.config_set("maxmemory", 1)

    assert await steps.change(JobKind.DROP, [a], a) == StepRecord(a, 1, 0)
    replaying = asyncio.create_task(steps.change(JobKind.REPLAY, [b], b))
    await eventually(lambda: reasons)
    assert await own_redis.xlen(keys.dead) == 1
    await own_redis.config_set("maxmemory", 0)

    assert await asyncio.wait_for(replaying, 30) == StepRecord(b, 2, 0)
    assert await own_redis.xlen(keys.express) == 1
