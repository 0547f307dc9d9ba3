"""Operations as an HTTP API calls them: values and callbacks, nothing printed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from dead_letter_entries import dead_fields
from redis import Redis

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.selection import Selection
from ingest.operations.audit import Reader
from ingest.operations.backends import Backends
from ingest.operations.failed_orders import dead_letters
from ingest.operations.state.health import Unhealthy, check_worker
from ingest.queue.layout.keys import Keys

EVERYTHING = Selection(everything=True)
READER = Reader("cli:ada", "ingest dead export")


@pytest.fixture
def backends(redis_url: str, dsn: str, queue_name: str) -> Backends:
    return Backends(redis_url, dsn, queue_name)


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as redis:
        yield redis


def add(redis: Redis, backends: Backends, *order_ids: str) -> None:
    for order_id in order_ids:
        redis.xadd(Keys.of(backends.stream).dead, dead_fields(order_id))


def into(entries: list[DeadLetterEntry]) -> dead_letters.Write:
    return lambda _source, some: entries.extend(some)


async def test_only_who_reads_whole_dead_letters_gets_their_documents(backends: Backends, redis: Redis) -> None:
    for order_id in "abcdef":
        redis.xadd(Keys.of(backends.stream).dead, dead_fields(order_id, document=b"x" * 1_000_000))
    found: list[DeadLetterEntry] = []
    read: list[DeadLetterEntry] = []
    before = _sent(redis)

    await dead_letters.find([backends], EVERYTHING, into(found), limit=9)
    between = _sent(redis)
    await dead_letters.find([backends], EVERYTHING, into(read), reader=READER, limit=9)

    assert [entry.order_id for entry in found] == [entry.order_id for entry in read] == list("fedcba")
    assert all(len(entry.fields[b"document"]) == 1_000_000 for entry in read)
    assert between - before < 1_000_000
    assert _sent(redis) - between > 6_000_000


def _sent(redis: Redis) -> int:
    statistics: Any = redis.info("stats")
    return int(statistics["total_net_output_bytes"])


async def test_export_writes_the_oldest_first_and_reports_progress(
    backends: Backends, redis: Redis, capfd: pytest.CaptureFixture[str]
) -> None:
    add(redis, backends, *(f"o-{number}" for number in range(450)))
    written: list[DeadLetterEntry] = []
    progress: list[tuple[int, int]] = []

    done = await dead_letters.export(
        [backends],
        EVERYTHING,
        into(written),
        reader=READER,
        on_progress=lambda examined, total: progress.append((examined, total)),
    )

    assert [entry.order_id for entry in written] == [f"o-{number}" for number in range(450)]
    assert (done.count, done.missing) == (450, frozenset())
    assert progress[-1] == (450, 450)
    assert capfd.readouterr() == ("", "")


async def test_dead_letters_of_several_sources_are_found_newest_first_up_to_the_limit(
    backends: Backends, redis: Redis
) -> None:
    sources = [replace(backends, stream=f"{backends.stream}/{name}", source=name) for name in ("a", "b", "empty")]
    for number in range(500):
        source = sources[number // 3 % 2]
        redis.xadd(Keys.of(source.stream).dead, dead_fields(number, dead_at=1_700_000_000_000 + number))
    found: list[tuple[str, str | None]] = []

    def write(source: str, entries: Sequence[DeadLetterEntry]) -> None:
        found.extend((source, entry.order_id) for entry in entries)

    some = await dead_letters.find(sources, EVERYTHING, write, limit=450)
    of_some, found = found, []
    everything = await dead_letters.find(sources, EVERYTHING, write, reader=READER)

    newest_first = [("ab"[number // 3 % 2], str(number)) for number in reversed(range(500))]
    assert (some.count, some.has_more, of_some) == (450, True, newest_first[:450])
    assert (everything.count, everything.has_more, found) == (500, False, newest_first)


def test_a_worker_that_does_not_answer_is_unhealthy() -> None:
    with pytest.raises(Unhealthy, match=r"no response from 127\.0\.0\.1:1: Connection refused$"):
        check_worker("0.0.0.0", 1, timeout=1.0)
