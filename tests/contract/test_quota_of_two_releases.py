"""Processes of the last release and of this one share a quota while an upgrade is rolled out."""

from collections.abc import Callable
from pathlib import Path

import pytest
from consumers import open_quota
from redis.asyncio import Redis
from releases import kept

from ingest.domain.fetch.quota import LeaseRequest, QuotaLimits
from ingest.queue.consume.quota import quota_key


class LastRelease:
    """A process of the last release, by its script."""

    def __init__(self, redis: Redis, key: str, scripts: Path, limits: QuotaLimits) -> None:
        self._redis = redis
        self._key = key
        self._text = "".join((scripts / f"{name}.lua").read_text() for name in ("_now", "_quota", "quota_lease"))
        self._limits = limits
        self._contribution = b""

    async def lease(self, tokens: int = 0, concurrency: int = 0, in_flight: int = 0) -> tuple[int, int, float]:
        """Return the members, the limit, and in how many seconds the first place comes."""
        limits = self._limits
        arguments = [self._contribution, limits.rate, limits.burst, limits.concurrency, tokens, concurrency, in_flight]
        reply = await self._redis.eval(self._text, 1, self._key, *arguments, 0, 0, 0, 0, 0)  # type: ignore[misc]
        self._contribution, members, _, starts, _, limit = reply[:6]
        return int(members), int(limit), int(starts) / 1e6


@pytest.fixture
async def last(redis: Redis, queue_name: str, tmp_path: Path) -> Callable[[QuotaLimits], LastRelease]:
    kept.unpack(tmp_path)
    key = quota_key(queue_name)
    await redis.hset(key, mapping={"created": 1, "learning": 1})
    return lambda limits: LastRelease(redis, key, tmp_path / "ingest" / "queue" / "lua", limits)


async def test_processes_of_both_releases_count_the_requests_of_each_other(
    last: Callable[[QuotaLimits], LastRelease], redis_url: str, queue_name: str
) -> None:
    limits = QuotaLimits(concurrency=10)
    old = last(limits)
    async with open_quota(redis_url, queue_name, limits) as new:
        assert (await new.lease(LeaseRequest(concurrency=6))).limit == 6
        assert await old.lease(concurrency=10) == (2, 4, 0.0)

        assert (await new.lease(LeaseRequest(concurrency=2, claim=6))).limit == 2
        assert (await old.lease(concurrency=10, in_flight=4))[1] == 4, "the other has not confirmed"
        assert (await new.lease(LeaseRequest(concurrency=2, claim=2))).limit == 2
        assert (await old.lease(concurrency=10, in_flight=4))[1] == 8

        assert (await new.lease(LeaseRequest(concurrency=10, claim=2))).limit == 2


async def test_processes_of_both_releases_share_one_line_of_time(
    last: Callable[[QuotaLimits], LastRelease], redis_url: str, queue_name: str
) -> None:
    limits = QuotaLimits(rate=2.0)
    old = last(limits)
    async with open_quota(redis_url, queue_name, limits) as new:
        first = (await new.lease(LeaseRequest(tokens=1))).starts_in
        second = (await old.lease(tokens=1))[2]
        third = (await new.lease(LeaseRequest(tokens=1))).starts_in

    assert first <= 0.01
    assert second == pytest.approx(0.5, abs=0.2)
    assert third == pytest.approx(1.0, abs=0.4)
