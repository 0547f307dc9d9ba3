"""A process follows the controls: often enough for every request, and with one reading for all of its sources."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from fakes.virtual_time import now, virtual_time

from ingest.domain.errors import NotSent, QueueUnavailable
from ingest.domain.operating.controls import Controls, Drain, LevelChange, LogLevel, Pause, Tuning
from ingest.flow.followed_controls import FollowedControls

SINCE = datetime(2026, 1, 1, tzinfo=UTC)
PROCESS = "web1-1f0c22ab-0"


class Record:
    """The controls of a deployment, which may be unavailable."""

    def __init__(self) -> None:
        self.controls = Controls()
        self.is_available = True
        self.readings = 0
        self.seconds = 0.0
        self.levels: list[LogLevel | None] = []
        self.followed = FollowedControls(
            self.read, PROCESS, lambda: SINCE + timedelta(seconds=now()), self.levels.append, clock=now
        )

    async def read(self, known: Controls) -> Controls:
        del known
        self.readings += 1
        await asyncio.sleep(self.seconds)
        if not self.is_available:
            raise QueueUnavailable("connection refused")
        return self.controls

    def pause(self, *sources: str, seconds: float | None = None) -> None:
        until = None if seconds is None else SINCE + timedelta(seconds=now() + seconds)
        self.controls = Controls(pauses={name: Pause(since=SINCE, until=until, by="me") for name in sources})


@virtual_time
async def test_no_request_begins_two_seconds_after_a_pause() -> None:
    record = Record()
    shop, other = record.followed.of("shop"), record.followed.of("other")
    await shop.admit()

    record.pause("shop")
    await asyncio.sleep(2.0)

    with pytest.raises(NotSent, match="the source is paused"):
        await shop.admit()
    await other.admit()


@virtual_time
async def test_requests_wait_for_the_reading_that_another_one_has_begun() -> None:
    record = Record()
    shop, other = record.followed.of("shop"), record.followed.of("other")
    await shop.admit()
    record.pause("shop", "other")
    record.seconds = 0.5
    await asyncio.sleep(4.0)

    admitted = await asyncio.gather(*(each.admit() for each in (shop, shop, other)), return_exceptions=True)

    assert [type(each) for each in admitted] == [NotSent] * 3
    assert record.readings == 2


@virtual_time
async def test_a_request_that_is_cancelled_while_it_reads_does_not_make_old_controls_recent() -> None:
    record = Record()
    shop = record.followed.of("shop")
    await shop.admit()
    record.pause("shop")
    record.seconds = 0.5
    await asyncio.sleep(4.0)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shop.admit(), 0.1)

    with pytest.raises(NotSent, match="the source is paused"):
        await shop.admit()


@virtual_time
async def test_requests_do_not_each_wait_for_a_redis_that_does_not_respond() -> None:
    record = Record()
    shop = record.followed.of("shop")
    await shop.admit()
    record.seconds = 60.0
    await asyncio.sleep(4.0)
    began_at = now()

    await asyncio.gather(*(shop.admit() for _ in range(10)))
    for _ in range(10):
        await shop.admit()

    assert now() - began_at < 1.5


@virtual_time
async def test_requests_of_a_second_share_one_reading() -> None:
    record = Record()
    sources = [record.followed.of(name) for name in "abc"]
    following = asyncio.create_task(record.followed.run())

    for _ in range(1_000):
        await asyncio.gather(*(source.admit() for source in sources))
        await asyncio.sleep(0.01)

    following.cancel()
    assert 8 <= record.readings <= 12


@virtual_time
async def test_an_idle_process_reads_every_five_seconds_and_a_paused_one_every_second() -> None:
    record = Record()
    shop = record.followed.of("shop")
    following = asyncio.create_task(record.followed.run())

    await asyncio.sleep(60.0)
    idle, record.readings = record.readings, 0
    record.pause("shop")
    await asyncio.wait_for(shop.paused.wait(), 7.0)
    record.readings = 0
    await asyncio.sleep(60.0)

    following.cancel()
    assert idle <= 13
    assert 50 <= record.readings <= 65


@virtual_time
async def test_a_pause_ends_by_itself_while_redis_is_unavailable() -> None:
    record = Record()
    shop = record.followed.of("shop")
    following = asyncio.create_task(record.followed.run())
    record.pause("shop", seconds=10.0)
    with pytest.raises(NotSent):
        await shop.admit()

    record.is_available = False
    await asyncio.sleep(5.0)
    still_paused = shop.is_paused
    await asyncio.wait_for(shop.resumed.wait(), 10.0)

    following.cancel()
    assert still_paused
    await shop.admit()


@virtual_time
async def test_a_drained_process_begins_nothing_of_any_source() -> None:
    record = Record()
    sources = [record.followed.of(name) for name in "ab"]
    record.controls = Controls(drains={"web1": Drain(since=SINCE, by="me")})

    for source in sources:
        with pytest.raises(NotSent, match="the process is drained"):
            await source.admit()
    assert not any(source.holds_list for source in sources)


@virtual_time
async def test_the_list_of_a_paused_source_is_read_unless_the_pause_holds_it() -> None:
    record = Record()
    shop = record.followed.of("shop")
    record.pause("shop")
    await shop.admit_page()

    record.controls = Controls(pauses={"shop": Pause(since=SINCE, by="me", holds_polls=True)})
    await asyncio.sleep(2.0)
    page = asyncio.create_task(shop.admit_page())
    await asyncio.sleep(5.0)
    is_held = not page.done()
    record.controls = Controls()
    await asyncio.wait_for(page, 5.0)

    assert is_held


@virtual_time
async def test_changed_limits_are_noticed_once() -> None:
    record = Record()
    shop = record.followed.of("shop")
    record.controls = Controls(tunings={"shop": Tuning(since=SINCE, by="me", rate=2.0)})

    await shop.admit()
    again = record.followed.of("shop")
    record.controls = Controls(tunings={"shop": Tuning(since=SINCE + timedelta(1), by="you", rate=2.0)})
    await asyncio.sleep(2.0)
    await again.admit()

    assert shop.tuned.is_set()
    assert again.tuning is not None
    assert not again.tuned.is_set()


@virtual_time
async def test_the_log_level_follows_and_returns() -> None:
    record = Record()
    record.controls = Controls(log_levels={"web1": LevelChange(level="debug", since=SINCE, by="me")})
    await record.followed.check()

    record.controls = Controls()
    await asyncio.sleep(2.0)
    await record.followed.check()

    assert record.levels == ["debug", None]
