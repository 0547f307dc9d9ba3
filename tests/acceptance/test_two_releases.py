"""The last release and this one run together on one queue, one database, and a schema that is newer than both."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from itertools import cycle

import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from integration.scene import Scene, assert_right, ids
from releases import kept
from support import Cli, eventually

from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.lab.upstream import Behaviour
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.store.schema import Migration, migrate, migrations

# The schema of both releases, as long as workers of the last one run.
KNOWN = [migration for migration in migrations() if not migration.contracts]
_LAST_RELEASE = migrations()[: kept.last_migration()]
# Possible schema changes of the next release. The column contains the application name from the DSN of a row's writer.
EXPANDED = Migration(
    KNOWN[-1].version + 1,
    "expanded",
    "ALTER TABLE orders ADD COLUMN stored_by text DEFAULT current_setting('application_name'), ADD COLUMN note text;"
    " CREATE TABLE notes (order_id text PRIMARY KEY); CREATE INDEX ON orders (status)",
    compatible_with=_LAST_RELEASE[-1].version,
)
CONTRACTED = Migration(EXPANDED.version + 1, "contracted", "ALTER TABLE orders DROP COLUMN attempts")
# Fields that a newer release or a user's own producer may write.
UNKNOWN = {b"version": b"7", b"tenant": "größe".encode(), b"blob": bytes(range(256)), b"empty": b""}


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables that select the command of the last release."""
    return kept.unpack(tmp_path_factory.mktemp("last-release"))


@pytest.fixture
async def upgraded_dsn(empty_dsn: str) -> str:
    """A database of the last release that this release has migrated."""
    await migrate(empty_dsn, _LAST_RELEASE)
    await migrate(empty_dsn, migrations())
    return empty_dsn


@pytest.fixture
async def scene(redis_url: str, upgraded_dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    # Requests fail now and then, so that entries wait for retries of which either release makes deliveries again.
    behaviour = Behaviour(any_id=True, latency="0.01-0.05", error_rate=0.05)
    async with Scene.open(redis_url, upgraded_dsn, queue_name, behaviour) as scene:
        yield scene


class Releases:
    """Starts workers of either release."""

    def __init__(self, workers: Workers, last: dict[str, str], dsn: str) -> None:
        self._workers = workers
        self._variables = {"last": last, "this": {}}
        self._dsn = dsn
        self.running: list[tuple[str, WorkerCommand]] = []

    def start(self, release: str) -> WorkerCommand:
        dsn = f"{self._dsn}{'&' if '?' in self._dsn else '?'}application_name={release}"
        env = {**self._workers.env, **self._variables[release], "INGEST_POSTGRES_DSN": dsn}
        command = WorkerCommand(self._workers.cli.start("worker", "--processes", "1", env=env))
        self._workers.started.append(command)
        self.running.append((release, command))
        return command

    async def kill_and_replace(self, release: str) -> None:
        """Kill a worker with all its processes, and start one of this release instead."""
        _, victim = self.running.pop(0)
        os.killpg(victim.process.pid, signal.SIGKILL)
        await self.start(release).says("process_started")


@pytest.fixture
def releases(cli: Cli, scene: Scene, last: dict[str, str]) -> Iterator[Releases]:
    settings = {
        "INGEST_UPSTREAM_URL": scene.api.url_template,
        "INGEST_CONCURRENCY": "10",
        "INGEST_UPSTREAM_TRIES": "1",
        "INGEST_HEARTBEAT_TTL": "1",
    }
    with closing_workers(cli, settings) as workers:
        yield Releases(workers, last, scene.dsn)


def test_the_last_release_is_what_runs(cli: Cli, last: dict[str, str]) -> None:
    assert cli.run("--version", env=last).stdout.split() == ["order-ingest", kept.version()]


@pytest.mark.long
async def test_while_workers_of_both_releases_are_killed_under_load_no_order_is_lost(
    scene: Scene, releases: Releases
) -> None:
    await migrate(scene.dsn, [*KNOWN, EXPANDED])
    batches = [ids(400, f"batch-{number}") for number in range(6)]
    for release in ("last", "this", "last", "this"):
        releases.start(release)

    for batch, release in zip(batches, cycle(["this", "last"]), strict=False):
        stored = await scene.stored()  # read before more are announced: later, fewer than 50 may be left to store
        await scene.enqueue_in_both_lanes(*batch[:-20])
        for order_id in batch[-20:]:
            await scene.redis.xadd(scene.keys.stream, {b"order_id": order_id.encode(), **UNKNOWN})
        await scene.stored_at_least(stored + 50)
        await releases.kill_and_replace(release)
    await scene.finished(within=60)

    assert await scene.dead() == []
    rows = await scene.rows()
    assert_right(rows, [order_id for batch in batches for order_id in batch])
    assert {row["stored_by"] for row in rows.values()} == {"last", "this"}
    assert [await command.stop() for _, command in releases.running] == [0] * 4


@pytest.mark.parametrize(("first", "second"), [("last", "this"), ("this", "last")])
async def test_what_a_release_does_not_know_of_an_entry_outlives_its_retry_release_and_dead_letter(
    scene: Scene, releases: Releases, queue_name: str, first: str, second: str
) -> None:
    scene.api.behave(breaking_id="retried", error_rate=0.0)
    await scene.redis.xadd(scene.keys.stream, {b"order_id": b"known"})
    await scene.redis.xadd(scene.keys.stream, {b"order_id": b"retried", **UNKNOWN})
    one = releases.start(first)
    await eventually(lambda: scene.redis.zcard(scene.keys.retry))

    assert await one.stop() == 0
    scene.api.behave(error_status=404)
    two = releases.start(second)
    await scene.finished()
    [(_, dead)] = await scene.redis.xrange(scene.keys.dead)
    assert UNKNOWN.items() <= dead.items()
    assert dead[b"reason"] == b"not_found"
    assert int(dead[b"attempts"]) >= 2

    assert await two.stop() == 0
    assert (
        await PartitionDeadLetters(scene.redis, queue_name).change(JobKind.REPLAY, Selection(everything=True))
    ).done == 1
    [(_, replayed)] = await scene.redis.xrange(scene.keys.express)
    assert UNKNOWN.items() <= replayed.items()
    scene.api.behave(breaking_id=None, error_status=500)
    releases.start(first)
    await scene.finished()
    rows = await scene.rows()
    assert sorted(rows) == ["known", "retried"]
    assert_right(rows, ["known", "retried"])


async def test_the_last_release_refuses_a_schema_that_it_cannot_use_and_says_what_to_do(
    cli: Cli, upgraded_dsn: str, last: dict[str, str]
) -> None:
    dsn = upgraded_dsn
    settings = {**last, "INGEST_UPSTREAM_URL": "http://localhost/{order_id}", "INGEST_POSTGRES_DSN": dsn}
    await migrate(dsn, [*KNOWN, EXPANDED])
    accepted = await asyncio.to_thread(cli.run, "migrate", env=settings)
    await migrate(dsn, [*KNOWN, EXPANDED, CONTRACTED])

    refused = await asyncio.to_thread(cli.run, "worker", env=settings)

    assert accepted.returncode == 0, accepted.stderr
    assert "can work with it" in accepted.stdout
    assert refused.returncode == 1
    assert "use a newer release of order-ingest" in " ".join(refused.stderr.split())
