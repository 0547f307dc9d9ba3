"""The record of controls on real servers, which is one hash for all sources, read by its version."""

from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis

from ingest.domain.operating.controls import ALL_HOSTS, NO_CONTROLS, Drain, LevelChange, Pause, Tuning
from ingest.queue.operate.controls import ControlRecord, controls_key
from ingest.queue.redis.scripts import load

pytestmark = pytest.mark.topologies

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def record(redis: Redis, queue_name: str) -> ControlRecord:
    return ControlRecord(redis, queue_name)


async def test_nothing_is_set_in_the_beginning(record: ControlRecord) -> None:
    assert await record.read() is NO_CONTROLS


async def test_controls_of_all_kinds_are_read_as_they_were_set(record: ControlRecord) -> None:
    pause = Pause(since=SINCE, until=SINCE + timedelta(minutes=10), by="cli:ann", reason="moves", holds_polls=True)
    tuning = Tuning(since=SINCE, by="cli:ann", concurrency=5, rate=2.5)
    drain = Drain(since=SINCE, by="key:ops")
    level = LevelChange(level="debug", since=SINCE, by="cli:ann")

    await record.set_pauses({"shop-de": pause, "": pause})
    await record.set_tunings({"shop-de": tuning})
    await record.set_drains({"web1": drain})
    await record.set_log_levels({ALL_HOSTS: level})
    found = await record.read()

    assert found.pauses == {"shop-de": pause, "": pause}
    assert found.tunings == {"shop-de": tuning}
    assert found.drains == {"web1": drain}
    assert found.log_levels == {ALL_HOSTS: level}


async def test_a_change_has_another_version_and_leaves_the_other_controls(record: ControlRecord) -> None:
    pause = Pause(since=SINCE, by="cli:ann")
    await record.set_pauses({"shop-de": pause, "shop-fr": pause})
    before = await record.read()

    await record.set_pauses({"shop-de": None})
    after = await record.read(before)

    assert after.version != before.version
    assert after.pauses == {"shop-fr": pause}
    assert await record.read(after) is after


async def test_a_lost_record_means_that_nothing_is_set(record: ControlRecord, redis: Redis, queue_name: str) -> None:
    await record.set_pauses({"": Pause(since=SINCE, by="cli:ann")})
    before = await record.read()

    await redis.delete(controls_key(queue_name))

    assert (await record.read(before)).pauses == {}


async def test_a_process_that_keeps_the_controls_writes_lost_ones_again(
    record: ControlRecord, redis: Redis, queue_name: str
) -> None:
    await record.set_pauses({"": Pause(since=SINCE, by="cli:ann")})
    await record.set_tunings({"shop-de": Tuning(since=SINCE, by="cli:ann", rate=2.5)})
    await record.set_log_levels({ALL_HOSTS: LevelChange(level="debug", since=SINCE, by="cli:ann")})
    known = await record.read()
    await redis.delete(controls_key(queue_name))

    kept = await record.keep(known)

    assert kept == known == await record.read()


async def test_lost_controls_do_not_replace_those_that_an_operator_has_set_since(
    record: ControlRecord, redis: Redis, queue_name: str
) -> None:
    await record.set_pauses({"shop-de": Pause(since=SINCE, by="cli:ann")})
    known = await record.read()
    await redis.delete(controls_key(queue_name))
    await record.set_pauses({"shop-fr": Pause(since=SINCE, by="cli:ann")})

    kept = await record.keep(known)

    assert kept.pauses.keys() == {"shop-fr"}


async def test_each_group_has_its_own_controls(redis: Redis, record: ControlRecord, queue_name: str) -> None:
    other = ControlRecord(redis, queue_name, "copies")

    await other.set_pauses({"": Pause(since=SINCE, by="cli:ann")})

    assert await record.read() is NO_CONTROLS
    assert (await other.read()).pauses


async def test_fields_of_a_later_release_are_left_alone(record: ControlRecord, redis: Redis, queue_name: str) -> None:
    await record.set_drains({"web1": Drain(since=SINCE, by="cli:ann")})
    await redis.hset(
        controls_key(queue_name),
        mapping={"quarantine:web2": "{}", "pause:shop-de": "not JSON", "drain:web3": '{"since":"2026-01-01T00:00:00Z","by":"x","new":1}', "version": "2"},
    )  # fmt: skip

    found = await record.read()

    assert (found.pauses, sorted(found.drains)) == ({}, ["web1", "web3"])


async def test_remembered_controls_do_not_replace_those_that_an_operator_has_just_set(
    record: ControlRecord, redis: Redis, queue_name: str
) -> None:
    await record.set_pauses({"shop-fr": Pause(since=SINCE, by="cli:bob")})

    # Redis had lost the record when the process looked for it.
    written = await load(redis, "restore_controls")([controls_key(queue_name)], ["version", "remembered"])

    found = await record.read()
    assert (written, set(found.pauses), found.version != "remembered") == (0, {"shop-fr"}, True)
