"""Dead letters on a real server, read in pages, replayed and dropped once each, even while others change them."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from consumers import Consumer, server_stats
from contract.test_producer import CuttingProxy
from dead_letter_entries import Fields, chunks, dead_fields, open_dead_letters
from listener import listening
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.operating.jobs import JobKind
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.dead_letter_pages import PAGE
from ingest.queue.operate.failed.partition_dead_letters import Change, PartitionDeadLetters
from ingest.queue.operate.job_steps import JobSteps, StepRecord
from ingest.queue.redis.connection import QueueRefused, control_client
from ingest.queue.redis.scripts import load

pytestmark = pytest.mark.topologies

EVERYTHING = Selection(everything=True)
ODD = {b"tenant": "Zoë ☕".encode(), b"blob": bytes(range(256)), b"": b"", b"traceparent": b"00-abc-def-01"}
LONG_AGO = 1_600_000_000_123
GROUP = "ingest"


async def dead_letter(redis: Redis, keys: Keys, entries: Iterable[Fields]) -> list[str]:
    """Add dead letters, and return their IDs."""
    entry_ids: list[str] = []
    for chunk in chunks(entries):
        async with redis.pipeline(transaction=False) as pipe:
            for fields in chunk:
                pipe.xadd(keys.dead, fields)
            entry_ids += [entry_id.decode() for entry_id in await pipe.execute()]
    return entry_ids


async def orders(redis: Redis, key: str) -> list[str]:
    """The order IDs in a stream."""
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(key)]


async def read_all(dead: PartitionDeadLetters, selection: Selection) -> list[DeadLetterEntry]:
    return [entry async for page in dead.oldest_first(selection) for entry in page.entries]


def names(count: int) -> list[str]:
    return [f"order-{number}" for number in range(count)]


def by_id(*ids: str) -> Selection:
    return Selection(ids=frozenset(ids))


async def _now(value: bool) -> bool:  # noqa: FBT001  the condition itself
    return value


@pytest.fixture
async def dead(redis_url: str, queue_name: str) -> AsyncIterator[PartitionDeadLetters]:
    async with open_dead_letters(redis_url, queue_name) as dead:
        yield dead


@pytest.fixture
async def consumer(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with Consumer.open(redis_url, queue_name, GROUP, "one", 1.0) as consumer:
        await consumer.ensure_group()
        yield consumer


# -- reading ------------------------------------------------------------------------------------------------------


async def test_without_dead_letters_there_is_nothing_to_read_or_change(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    seen = await read_all(dead, EVERYTHING)
    survey = await dead.survey(by_id("a"))
    changes = await dead.change(JobKind.REPLAY, EVERYTHING), await dead.change(JobKind.DROP, EVERYTHING)

    assert (seen, await dead.count(), await dead.get("1-0"), await dead.newest()) == ([], 0, None, "0-0")
    assert (survey.count, survey.missing) == (0, {"a"})
    assert changes == (Change(0, 0), Change(0, 0))
    assert await redis.exists(keys.stream, keys.express, keys.dead) == 0


async def test_pages_hold_all_dead_letters_in_both_directions(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    entry_ids = await dead_letter(redis, keys, map(dead_fields, names(2 * PAGE + 7)))

    forward = [page async for page in dead.oldest_first(EVERYTHING)]
    back = [page async for page in dead.newest_first(EVERYTHING)]

    assert [entry.entry_id for page in forward for entry in page.entries] == entry_ids
    assert [entry.entry_id for page in back for entry in page.entries] == entry_ids[::-1]
    assert [page.examined for page in forward] == [page.examined for page in back] == [PAGE, PAGE, 7]
    assert await dead.count() == len(entry_ids)
    assert await dead.newest() == entry_ids[-1]


async def test_pages_that_are_not_asked_for_are_not_read(dead: PartitionDeadLetters, redis: Redis, keys: Keys) -> None:
    await dead_letter(redis, keys, map(dead_fields, names(2 * PAGE)))

    await dead.newest()  # the script is loaded
    calls = (await server_stats(redis, keys, "commandstats"))["cmdstat_evalsha"]["calls"]

    async with aclosing(dead.oldest_first(EVERYTHING)) as pages:
        first = await anext(pages)

    assert len(first.entries) == PAGE
    assert (await server_stats(redis, keys, "commandstats"))["cmdstat_evalsha"]["calls"] == calls + 1


async def test_whole_dead_letters_are_read_some_megabytes_at_a_time(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    sizes = [0, 900_000, 5_000, 3_000_000, 10, *[900_000] * 12]
    entries = [dead_fields(f"o-{number}", document=b"x" * size) for number, size in enumerate(sizes)]
    entry_ids = await dead_letter(redis, keys, entries)

    forward = [page async for page in dead.oldest_first(EVERYTHING)]
    back = [page async for page in dead.newest_first(EVERYTHING)]
    by_ids = [page async for page in dead.newest_first(by_id(*entry_ids))]

    for pages in (forward, back, by_ids):
        found = {entry.order_id: entry.fields.get(b"document") for page in pages for entry in page.entries}
        assert found == {f"o-{number}": b"x" * size for number, size in enumerate(sizes)}
        assert sum(page.examined for page in pages) == len(sizes)
        for page in pages:
            together = [
                len(entry.fields[b"document"]) for entry in page.entries if len(entry.fields[b"document"]) > 5_000
            ]
            assert sum(together) < 3_000_000 or len(together) == 1
    assert [entry.entry_id for page in forward for entry in page.entries] == entry_ids
    assert [entry.entry_id for page in back for entry in page.entries] == entry_ids[::-1]


async def test_a_large_dead_letter_that_is_gone_when_it_is_read_is_left_out(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    entries = [dead_fields(order_id, document=b"x" * 1_500_000) for order_id in "abc"]
    entry_ids = await dead_letter(redis, keys, entries)

    async with aclosing(dead.oldest_first(EVERYTHING)) as pages:
        first = await anext(pages)
        await redis.xdel(keys.dead, entry_ids[1])
        rest = [page async for page in pages]

    assert [entry.order_id for entry in first.entries] == ["a"]
    assert [entry.order_id for page in rest for entry in page.entries] == ["c"]


async def test_a_dead_letter_is_looked_up_by_its_id(dead: PartitionDeadLetters, redis: Redis, keys: Keys) -> None:
    first, second = await dead_letter(redis, keys, [dead_fields("a"), dead_fields("b", "rejected", error="HTTP 400")])

    found = await dead.get(second)

    assert found is not None
    assert (found.entry_id, found.order_id, found.reason, found.error) == (second, "b", "rejected", "HTTP 400")
    for other in ("a", "", "0-0", "-", "+", f"({first}", first.partition("-")[0], f"{1 << 64}-0", f"0{first}"):
        assert await dead.get(other) is None


async def test_a_dead_letter_is_found_by_its_own_id_without_a_search(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    entry_ids = await dead_letter(redis, keys, map(dead_fields, names(3 * PAGE)))

    by_entry = [page async for page in dead.oldest_first(by_id(*entry_ids[-2:]))]
    by_order = [page async for page in dead.oldest_first(by_id("order-3", entry_ids[-1]))]

    assert [entry.entry_id for page in by_entry for entry in page.entries] == entry_ids[-2:]
    assert sum(page.examined for page in by_entry) == 2
    assert [entry.entry_id for page in by_order for entry in page.entries] == [entry_ids[-1], entry_ids[3]]


@pytest.mark.parametrize("seed", range(4))
async def test_the_dead_letters_that_match_the_selection_are_found(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys, seed: int
) -> None:
    chance = random.Random(seed)
    now = int(datetime.now(UTC).timestamp() * 1000)
    order_ids = [*names(30), "2024-17", "1-1"]
    # An entry cannot be older than its `dead_at`.
    entries = [
        dead_fields(chance.choice(order_ids), chance.choice(list(DeadReason)), dead_at=now - chance.randrange(10_000))
        for _ in range(2 * PAGE + 50)
    ]
    entry_ids = await dead_letter(redis, keys, entries)
    everything = await read_all(dead, EVERYTHING)
    moment = datetime.fromtimestamp(now / 1000, UTC)
    criteria: dict[str, Any] = {
        "ids": frozenset(chance.sample([*order_ids, *entry_ids, "nobody", "9-9"], 40)),
        "reasons": frozenset(chance.sample(list(DeadReason), 3)),
        "since": moment - timedelta(milliseconds=chance.randrange(5_000, 10_000)),
        "until": moment - timedelta(milliseconds=chance.randrange(5_000)),
    }
    selection = Selection(**{name: criteria[name] for name in chance.sample(sorted(criteria), chance.randint(1, 4))})

    forward = [entry.entry_id for entry in await read_all(dead, selection)]
    back = [entry.entry_id async for page in dead.newest_first(selection) for entry in page.entries]
    survey = await dead.survey(selection)

    expected = [entry for entry in everything if selection.matches(entry)]
    assert sorted(forward) == sorted(back) == sorted(entry.entry_id for entry in expected)
    assert survey.reasons == Counter(entry.reason for entry in expected)
    assert survey.missing == selection.ids - frozenset[str]().union(*map(selection.names, expected))


async def test_a_search_since_a_time_does_not_start_at_the_oldest(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.dead, dead_fields("old", dead_at=LONG_AGO), id=f"{LONG_AGO}-0")
    await dead_letter(redis, keys, [dead_fields("new")])

    pages = [page async for page in dead.oldest_first(Selection(since=datetime.now(UTC) - timedelta(days=1)))]

    assert [entry.order_id for page in pages for entry in page.entries] == ["new"]
    assert sum(page.examined for page in pages) == 1


async def test_a_survey_reports_its_progress(dead: PartitionDeadLetters, redis: Redis, keys: Keys) -> None:
    told: list[int] = []
    entry_ids = await dead_letter(redis, keys, map(dead_fields, names(2 * PAGE + 1)))

    survey = await dead.survey(EVERYTHING, on_progress=told.append)

    assert told == [PAGE, 2 * PAGE, 2 * PAGE + 1]
    assert (survey.count, survey.newest, survey.missing) == (2 * PAGE + 1, entry_ids[-1], frozenset())


# -- replaying ----------------------------------------------------------------------------------------------------


async def test_a_replayed_entry_has_fresh_attempts_and_keeps_its_own_fields_and_age(
    dead: PartitionDeadLetters, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {b"order_id": b"a", b"attempt": b"4", b"enqueued_at": b"%d" % LONG_AGO, **ODD})
    [delivery] = await consumer.read(1, 0.001)
    await consumer.dead_letter(delivery, DeadReason.ATTEMPTS_EXHAUSTED, "HTTP 500: é")
    seconds, micros = await redis.time()

    change = await dead.change(JobKind.REPLAY, EVERYTHING)

    assert change == Change(1, 0)
    assert await dead.count() == 0
    [(_, fields)] = await redis.xrange(keys.express)
    replayed_at = int(fields.pop(b"replayed_at"))
    assert seconds * 1000 + micros // 1000 <= replayed_at < seconds * 1000 + 60_000
    assert fields == {b"order_id": b"a", b"enqueued_at": b"%d" % LONG_AGO, b"replays": b"1", **ODD}
    [again] = await consumer.read(1, 0.001)
    assert (again.attempt, again.enqueued_at, again.count) == (1, LONG_AGO / 1000, 1)


async def test_what_was_announced_without_a_time_keeps_that_of_its_first_entry(
    dead: PartitionDeadLetters, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {"order_id": "a"}, id=f"{LONG_AGO}-0")
    [delivery] = await consumer.read(1, 0.001)
    await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")

    await dead.change(JobKind.REPLAY, EVERYTHING)

    [again] = await consumer.read(1, 0.001)
    assert again.enqueued_at == LONG_AGO / 1000


async def test_replays_are_counted_however_often_the_entry_is_retried_and_dead_lettered_again(
    dead: PartitionDeadLetters, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {"order_id": "a", "tenant": "x"}, id=f"{LONG_AGO}-0")
    seen: list[DeadLetterEntry] = []

    for _ in range(3):
        [delivery] = await consumer.read(1, 0.001)
        await consumer.reschedule(delivery, 0.0, 2)
        await consumer.move_due(1)
        [delivery] = await consumer.read(1, 0.001)
        await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")
        seen += await read_all(dead, EVERYTHING)
        await dead.change(JobKind.REPLAY, EVERYTHING)

    assert [(entry.replays, entry.attempts, entry.fields[b"tenant"]) for entry in seen] == [
        (0, 2, b"x"),
        (1, 2, b"x"),
        (2, 2, b"x"),
    ]
    assert {entry.first_enqueued_at for entry in seen} == {datetime.fromtimestamp(LONG_AGO / 1000, UTC)}
    moments = [entry.replayed_at for entry in seen[1:]]
    assert seen[0].replayed_at is None
    assert [entry.dead_at for entry in seen[:2]] <= moments <= [entry.dead_at for entry in seen[1:]]  # type: ignore[operator]  # none of them is None
    [(_, fields)] = await redis.xrange(keys.express)
    assert fields[b"replays"] == b"3"


@pytest.mark.parametrize("nonsense", [b"", b"-1", b"1e300", b"0x10", b"nan", b"9" * 40, b"\xff"])
async def test_nonsense_in_fields_of_ours_does_not_stop_a_replay(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys, nonsense: bytes
) -> None:
    numbers = dict.fromkeys(("attempts", "dead_at", "first_enqueued_at", "replays", "replayed_at", "attempt"), nonsense)
    await dead_letter(redis, keys, [dead_fields("a", enqueued_at=nonsense, **numbers)])

    await dead.change(JobKind.REPLAY, EVERYTHING)

    [(_, fields)] = await redis.xrange(keys.express)
    assert {name: fields[name] for name in fields if name != b"replayed_at"} == {b"order_id": b"a", b"replays": b"1"}


async def test_an_entry_without_fields_of_its_own_can_be_replayed(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.dead, {"reason": "invalid_message"})

    assert await dead.change(JobKind.REPLAY, EVERYTHING) == Change(1, 0)

    [(_, fields)] = await redis.xrange(keys.express)
    assert set(fields) == {b"replays", b"replayed_at"}


async def test_thousands_go_back_in_pages_in_order_and_are_counted_exactly(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    told: list[Change] = []
    reasons = [DeadReason.NOT_FOUND, DeadReason.REJECTED]
    await dead_letter(
        redis, keys, (dead_fields(name, reasons[number % 5 == 0]) for number, name in enumerate(names(2_500)))
    )

    change = await dead.change(
        JobKind.REPLAY, Selection(reasons=frozenset({DeadReason.NOT_FOUND})), on_progress=told.append
    )

    assert change == Change(2_000, 0)
    assert told[-1] == change
    assert sorted(told, key=lambda change: change.done) == told
    assert len(told) >= 2_000 / PAGE
    assert await orders(redis, keys.express) == [name for number, name in enumerate(names(2_500)) if number % 5]
    assert await orders(redis, keys.dead) == [name for number, name in enumerate(names(2_500)) if not number % 5]


@pytest.mark.parametrize("job_kind", [JobKind.REPLAY, JobKind.DROP])
async def test_more_ids_than_fit_a_page_are_all_found(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys, job_kind: JobKind
) -> None:
    entry_ids = await dead_letter(redis, keys, map(dead_fields, names(2 * PAGE + 10)))

    change = await dead.change(job_kind, by_id(*entry_ids[5:], "order-0", "nobody"))

    assert change == Change(2 * PAGE + 6, 0)
    assert await orders(redis, keys.dead) == names(5)[1:]


async def test_two_replays_at_once_replay_each_once(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    await dead_letter(redis, keys, map(dead_fields, names(10 * PAGE)))

    async with open_dead_letters(redis_url, queue_name) as other:
        one, two = await asyncio.gather(
            dead.change(JobKind.REPLAY, EVERYTHING), other.change(JobKind.REPLAY, EVERYTHING)
        )

    assert one.done + two.done == 10 * PAGE
    assert one.gone + two.gone <= 10 * PAGE
    assert Counter(await orders(redis, keys.express)) == Counter(names(10 * PAGE))
    assert await dead.count() == 0


async def test_dead_letters_that_are_gone_before_they_are_moved_are_counted_as_gone(
    redis: Redis, keys: Keys, queue_name: str
) -> None:
    entry_ids = await dead_letter(redis, keys, map(dead_fields, names(PAGE + 10)))
    told: list[Change] = []

    class Racing(PartitionDeadLetters):
        """Another operator is faster, just after the second page was read."""

        async def _waiting(self, call: Any, *arguments: Any) -> Any:
            answer = await super()._waiting(call, *arguments)
            if isinstance(answer, tuple) and [entry.entry_id for entry, _ in answer[0][:1]] == [entry_ids[PAGE]]:
                await redis.xdel(keys.dead, *entry_ids[PAGE : PAGE + 3])
            return answer

    change = await Racing(redis, queue_name).change(JobKind.REPLAY, EVERYTHING, on_progress=told.append)

    assert change == Change(PAGE + 7, 3)
    assert told == [Change(PAGE, 0), Change(PAGE + 7, 3)]


async def test_what_is_dead_lettered_meanwhile_stays(dead: PartitionDeadLetters, redis: Redis, keys: Keys) -> None:
    await dead_letter(redis, keys, map(dead_fields, names(3 * PAGE)))
    survey = await dead.survey(EVERYTHING)
    await dead_letter(redis, keys, [dead_fields("later")])

    async with asyncio.TaskGroup() as tasks:
        replaying = tasks.create_task(dead.change(JobKind.REPLAY, EVERYTHING, newest=survey.newest))
        for _ in range(20):
            await dead_letter(redis, keys, [dead_fields("later")])
    again = await dead.change(JobKind.REPLAY, EVERYTHING)

    assert replaying.result() == Change(3 * PAGE, 0)
    assert again == Change(21, 0)


async def test_a_replay_ends_though_all_it_puts_back_dies_again(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    async def die_again(change: Change) -> None:
        await dead_letter(redis, keys, (dead_fields(name) for name in names(change.done)))

    await dead_letter(redis, keys, map(dead_fields, names(3 * PAGE)))
    dying: list[asyncio.Task[None]] = []
    async with open_dead_letters(redis_url, queue_name) as dead, asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        change = await dead.change(
            JobKind.REPLAY, EVERYTHING, on_progress=lambda change: dying.append(tasks.create_task(die_again(change)))
        )

    assert change == Change(3 * PAGE, 0)


@pytest.mark.parametrize("name", ["replay", "drop"])
async def test_the_same_record_is_answered_and_done_once(redis: Redis, keys: Keys, redis_url: str, name: str) -> None:
    entry_ids = await dead_letter(redis, keys, map(dead_fields, "abc"))
    others = [keys.express, keys.stream, keys.erased] if name == "replay" else []
    script_keys = [keys.dead, keys.dead_seen, *others, keys.records + "r"]

    async with control_client(redis_url) as client:
        script = load(client, name)
        arguments = [*(["ingest"] if name == "replay" else []), *entry_ids[:2]]
        done = [await script(script_keys, arguments) for _ in range(3)]

    assert done == [2, 2, 2]
    assert await orders(redis, keys.dead) == ["c"]
    assert await orders(redis, keys.express) == (["a", "b"] if name == "replay" else [])
    assert 0 < await redis.ttl(keys.records + "r") <= 600


async def test_documents_are_not_read_to_replay_or_drop(dead: PartitionDeadLetters, redis: Redis, keys: Keys) -> None:
    entry_ids = await dead_letter(redis, keys, (dead_fields(name, document="1" * 100_000) for name in names(60)))
    before = (await server_stats(redis, keys, "stats"))["total_net_output_bytes"]

    survey = await dead.survey(EVERYTHING)
    changes = [
        await dead.change(JobKind.REPLAY, by_id("order-1", "order-2")),
        await dead.change(JobKind.DROP, by_id(*entry_ids[3:40])),
        await dead.change(JobKind.DROP, EVERYTHING),
    ]

    assert (survey.count, changes) == (60, [Change(2, 0), Change(37, 0), Change(21, 0)])
    assert (await server_stats(redis, keys, "stats"))["total_net_output_bytes"] - before < 200_000
    assert [len(fields[b"document"]) for _, fields in await redis.xrange(keys.express)] == [100_000] * 2


async def test_large_dead_letters_are_moved_a_few_megabytes_at_a_time(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    await dead_letter(redis, keys, (dead_fields(name, document="1" * 900_000) for name in names(6)))

    change = await dead.change(JobKind.REPLAY, EVERYTHING)

    assert change == Change(6, 0)
    assert len(await redis.keys(f"{keys.records}*")) == 3, "one record for each script"


async def test_a_replay_of_an_order_that_was_erased_deletes_its_dead_letter(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    await dead_letter(redis, keys, map(dead_fields, "abc"))
    await redis.zadd(keys.erased, {"b": 1})

    change = await dead.change(JobKind.REPLAY, EVERYTHING)

    assert change == Change(2, 1)
    assert (await orders(redis, keys.dead), await orders(redis, keys.express)) == ([], ["a", "c"])


@asynccontextmanager
async def behind_a_cutting_proxy(
    redis_url: str, queue: str, cuts: int, told: list[str]
) -> AsyncIterator[PartitionDeadLetters]:
    """Dead letters for which as many replies get lost after the work was done."""
    proxy = CuttingProxy(urlsplit(redis_url).port or 0, cuts)
    async with listening(proxy.serve) as port:
        url = redis_url.replace(f":{urlsplit(redis_url).port}/", f":{port}/")
        async with open_dead_letters(url, queue, on_wait=told.append) as dead:
            yield dead
    assert proxy.cuts == 0


@pytest.mark.topologies("standalone")
@pytest.mark.parametrize("cuts", [1, 4])
@pytest.mark.parametrize("job_kind", [JobKind.REPLAY, JobKind.DROP])
async def test_a_page_whose_reply_is_lost_is_moved_once_and_counted(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str, cuts: int, job_kind: JobKind
) -> None:
    told: list[str] = []
    await dead_letter(redis, keys, map(dead_fields, names(3 * PAGE)))

    async with behind_a_cutting_proxy(redis_url, queue_name, cuts, told) as dead:
        change = await dead.change(job_kind, EVERYTHING)

    assert change == Change(3 * PAGE, 0)
    assert told
    assert await redis.xlen(keys.dead) == 0
    assert await orders(redis, keys.express) == (names(3 * PAGE) if job_kind is JobKind.REPLAY else [])


async def test_cancelled_it_has_put_back_whole_pages_from_the_front(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    await dead_letter(redis, keys, map(dead_fields, names(5 * PAGE)))
    first = asyncio.Event()

    replaying = asyncio.create_task(dead.change(JobKind.REPLAY, EVERYTHING, on_progress=lambda _: first.set()))
    await first.wait()
    replaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replaying

    back = await orders(redis, keys.express)
    assert len(back) in range(PAGE, 5 * PAGE, PAGE)
    assert back + await orders(redis, keys.dead) == names(5 * PAGE)


async def test_cancelled_in_a_page_it_reads_no_other(dead: PartitionDeadLetters, redis: Redis, keys: Keys) -> None:
    await dead_letter(redis, keys, map(dead_fields, names(5 * PAGE)))

    replaying = asyncio.create_task(
        dead.change(JobKind.REPLAY, EVERYTHING, on_progress=lambda _: replaying.cancel() and None)
    )
    with pytest.raises(asyncio.CancelledError):
        await replaying

    assert await orders(redis, keys.express) == names(PAGE)


# -- servers that are unavailable, full or reject ----------------------------------------------------------------------


@pytest.mark.each_server
async def test_a_replay_waits_while_redis_is_out_of_memory_and_has_moved_nothing_by_halves(
    own_valkey: ValkeyServer, own_redis: Redis
) -> None:
    told: list[str] = []
    keys = Keys.of("orders")
    await dead_letter(own_redis, keys, map(dead_fields, names(PAGE + 50)))
    await own_redis.config_set("maxmemory", 1)

    async with open_dead_letters(own_valkey.url, "orders", on_wait=told.append) as dead:
        replaying = asyncio.create_task(dead.change(JobKind.REPLAY, EVERYTHING))
        await eventually(lambda: _now(bool(told)))
        before = await orders(own_redis, keys.dead), await own_redis.xlen(keys.express)
        await own_redis.config_set("maxmemory", 0)
        change = await replaying

    assert before == (names(PAGE + 50), 0)
    assert told == ["Redis is out of memory; waiting for the workers to make room"]
    assert change == Change(PAGE + 50, 0)
    assert await orders(own_redis, keys.express) == names(PAGE + 50)


@pytest.mark.each_server
async def test_dropping_makes_room_in_a_redis_that_is_out_of_memory(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    told: list[str] = []
    keys = Keys.of("orders")
    await dead_letter(own_redis, keys, map(dead_fields, names(PAGE + 50)))
    await own_redis.config_set("maxmemory", 1)

    async with open_dead_letters(own_valkey.url, "orders", on_wait=told.append) as dead:
        change = await dead.change(JobKind.DROP, EVERYTHING)

    assert (change, told) == (Change(PAGE + 50, 0), [])
    assert await own_redis.xlen(keys.dead) == 0


@pytest.mark.each_server
async def test_a_job_that_drops_makes_room_in_a_redis_that_is_out_of_memory(own_redis: Redis) -> None:
    told: list[str] = []
    keys = Keys.of("orders")
    entries = await dead_letter(own_redis, keys, map(dead_fields, names(3)))
    await own_redis.config_set("maxmemory", 1)

    steps = JobSteps(own_redis, "orders", 7, on_wait=told.append)
    await steps.begin(StepRecord())
    done = await steps.change(JobKind.DROP, entries, entries[-1])
    await steps.forget()

    assert (done, told) == (StepRecord(entries[-1], 3, 0), [])
    assert await own_redis.xlen(keys.dead) == 0


@pytest.mark.parametrize("job_kind", [JobKind.REPLAY, JobKind.DROP])
async def test_an_unavailable_server_is_waited_for(own_valkey: ValkeyServer, job_kind: JobKind) -> None:
    told: list[str] = []
    keys = Keys.of("orders")
    async with Redis.from_url(own_valkey.url) as redis:
        await dead_letter(redis, keys, map(dead_fields, names(PAGE + 50)))
    own_valkey.stop("save")

    async with open_dead_letters(own_valkey.url, "orders", on_wait=told.append) as dead:
        acting = asyncio.create_task(dead.change(job_kind, EVERYTHING))
        surveying = asyncio.create_task(dead.survey(EVERYTHING))
        await eventually(lambda: _now(len(told) >= 2))
        with pytest.raises(QueueUnavailable):
            await dead.count()
        with pytest.raises(QueueUnavailable):
            await read_all(dead, EVERYTHING)
        own_valkey.start()
        change = await acting
        await surveying

    assert change == Change(PAGE + 50, 0)
    assert told[0].startswith("Redis cannot be reached")
    assert own_valkey.password not in "".join(told)


@pytest.mark.each_server
@pytest.mark.parametrize("forbidden", ["xadd", "xdel", "set"])
async def test_refused_half_way_a_replay_has_lost_nothing(
    own_valkey: ValkeyServer, own_redis: Redis, forbidden: str
) -> None:
    keys = Keys.of("orders")
    await dead_letter(own_redis, keys, map(dead_fields, "abc"))
    await own_redis.execute_command("ACL", "SETUSER", "operator", "on", ">word", "~*", "+@all", f"-{forbidden}")
    url = own_valkey.url.replace(f":{own_valkey.password}@", "operator:word@")

    async with open_dead_letters(url, "orders") as dead:
        with pytest.raises(QueueRefused):
            await dead.change(JobKind.REPLAY, EVERYTHING)

    left, back = await orders(own_redis, keys.dead), await orders(own_redis, keys.express)
    assert set(left) | set(back) == {"a", "b", "c"}
    assert len(left) + len(back) <= 4, "at most the one that it was at is in both places"


async def test_a_key_of_another_type_is_not_waited_for(dead: PartitionDeadLetters, redis: Redis, keys: Keys) -> None:
    await dead_letter(redis, keys, map(dead_fields, "ab"))
    await redis.set(keys.express, "not a stream")

    with pytest.raises(UserError):
        await dead.change(JobKind.REPLAY, EVERYTHING)

    assert await orders(redis, keys.dead) == ["a", "b"]


# -- dropping -----------------------------------------------------------------------------------------------------


async def test_only_the_dead_letters_that_match_are_dropped(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys
) -> None:
    reasons = [DeadReason.REJECTED, DeadReason.NOT_FOUND]
    await dead_letter(
        redis, keys, (dead_fields(name, reasons[number % 2]) for number, name in enumerate(names(3 * PAGE)))
    )

    change = await dead.change(JobKind.DROP, Selection(reasons=frozenset({"rejected"})))

    assert change == Change(3 * PAGE // 2, 0)
    assert await orders(redis, keys.dead) == names(3 * PAGE)[1::2]
    assert await redis.exists(keys.stream, keys.express) == 0


async def test_a_replay_and_a_drop_at_once_move_each_once(
    dead: PartitionDeadLetters, redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    await dead_letter(redis, keys, map(dead_fields, names(5 * PAGE)))

    async with open_dead_letters(redis_url, queue_name) as other:
        replayed, dropped = await asyncio.gather(
            dead.change(JobKind.REPLAY, EVERYTHING), other.change(JobKind.DROP, EVERYTHING)
        )

    assert replayed.done + dropped.done == 5 * PAGE
    assert await redis.xlen(keys.express) == replayed.done
    assert await dead.count() == 0
