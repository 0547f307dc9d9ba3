"""Every command of the service works with no more rights than deploy/ gives it, on each server that it supports."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from acceptance.commands import Workers, closing_workers
from accounts import (
    FORBIDDEN,
    OF_A_SOURCE,
    PASSWORD,
    QUEUE,
    create_user,
    permitted,
    refused_in_scripts,
    script_names,
)
from integration.scene import Scene, ids
from odd_ids import ODD_IDS
from redis import Redis
from servers.kinds import KINDS, WITH_XNACK, Kind
from shop_source import shop_source
from support import Cli, closing_cli, eventually, logged_in

from ingest.store.schema import migrations


@dataclass
class Location:
    """A server with the user `ingest`, a database with a runtime role, and commands that use only these."""

    admin: "Redis"
    scene: Scene
    cli: Cli
    workers: Workers

    def refused(self) -> list[dict[str, Any]]:
        """The commands that the server has denied."""
        return [
            {key: entry[key] for key in ("reason", "object", "username", "context")} for entry in self.admin.acl_log()
        ]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URLs of one server with all rights and with the worker's rights."""
    kind: Kind = request.param
    with kind.server(tmp_path / "server") as running:
        yield running.url, create_user(running.url, kind, "ingest")


@pytest.fixture
async def place(server: tuple[str, str], dsn: str, env: dict[str, str], tmp_path: Path) -> AsyncIterator[Location]:
    everything, limited = server
    (tmp_path / "password").write_text(PASSWORD)
    own = {
        "INGEST_STREAM": QUEUE,
        "INGEST_REDIS_URL": limited,
        "INGEST_REDIS_PASSWORD_FILE": str(tmp_path / "password"),
        "INGEST_POSTGRES_DSN": dsn,
    }
    async with Scene.open(everything, dsn, QUEUE) as scene:
        own["INGEST_UPSTREAM_URL"] = scene.api.url_template
        with (
            Redis.from_url(everything, decode_responses=True) as admin,
            closing_cli(env | own) as cli,
            closing_workers(cli, own) as workers,
        ):
            yield Location(admin, scene, cli, workers)


async def command(place: Location, *arguments: str) -> str:
    """The output of a command of the service that succeeds."""
    done = await asyncio.to_thread(place.cli.run, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("server", [KINDS[0], *WITH_XNACK], ids=lambda kind: kind.name, indirect=True)
async def test_the_service_does_all_its_work_and_no_command_is_refused(place: Location) -> None:
    scene, admin = place.scene, place.admin
    stored, refused = ODD_IDS[:30], ids(5, "nowhere")
    settings: dict[str, object] = {"processes": 1, "concurrency": 40, "heartbeat_ttl": 1, "claim_idle": 3600}
    settings |= {"shutdown_grace": 1, "results": "on", "keep_document": "on"}

    async def requests(count: int) -> bool:
        return scene.api.stats().requests >= count

    async def dead(count: int) -> bool:
        return len(await scene.dead()) == count

    # A process dies and is replaced, then a whole command dies and another reclaims, so that its entries move twice.
    scene.api.behave(hang_rate=1.0)
    await command(place, "enqueue", "--", *stored)
    first = place.workers.start(**settings)
    await eventually(lambda: requests(30))
    os.kill(first.pid_of("worker-0"), signal.SIGKILL)
    await eventually(lambda: requests(60))
    second = place.workers.start(**settings)
    await second.says("process_started", process="worker-0")
    first.ask_group(signal.SIGKILL)
    await second.says("entries_reclaimed", reason="dead_consumer")
    # After a short grace period, the second releases everything. The third stores, retries and dead-letters.
    second.ask(signal.SIGTERM)
    assert await second.exit_code() == 0
    assert second.events("stopped", released=30)
    scene.api.behave(hang_rate=0.0)
    place.workers.start(**settings, upstream_rate=1000, upstream_concurrency=200)
    await scene.stored_at_least(len(stored))
    scene.api.behave(error_rate=1.0, fail_first=3)
    await command(place, "enqueue", "flaky")
    await scene.stored_at_least(len(stored) + 1)
    scene.api.behave(error_rate=0.0, fail_first=0)
    for order_id in refused:
        scene.api.delete_order(order_id)
    admin.xadd(scene.keys.stream, {"order_id": " no ID "})
    await command(place, "enqueue", *refused)
    await eventually(lambda: dead(6))
    assert refused[0] in await command(place, "dead", "list", "--json")
    assert "not_found" in await command(place, "dead", "show", refused[0])
    assert refused[-1] in await command(place, "dead", "export")
    await command(place, "dead", "replay", refused[0])
    await eventually(lambda: dead(6))
    await command(place, "dead", "drop", "--all", "--yes")
    await eventually(lambda: dead(0))
    assert '"stored": 31' in await command(place, "status", "--json")
    assert '"unchanged": 31' in await command(place, "remap", "--json")
    assert PASSWORD not in await command(place, "config", "--json")

    assert place.refused() == []
    outcomes = [fields["outcome"] for _, fields in admin.xrange(scene.keys.results)]
    assert outcomes.count("inserted") == 31
    assert outcomes.count("dead_lettered") == 7


@pytest.mark.parametrize("server", [KINDS[0], *WITH_XNACK], ids=lambda kind: kind.name, indirect=True)
async def test_a_shop_is_backfilled_and_reconciled_with_the_rights_of_a_worker(
    server: tuple[str, str], dsn: str, env: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    own = {
        "INGEST_REDIS_URL": server[1],
        "INGEST_REDIS_PASSWORD_FILE": str(tmp_path / "password"),
        "INGEST_POSTGRES_DSN": dsn,
    }
    async with (
        Scene.open(server[0], dsn, QUEUE) as scene,
        shop_source(scene, tmp_path, orders=30, size=10) as shop,
    ):
        with closing_cli(env | own | dict(shop.env)) as cli, closing_workers(cli, {}) as workers:
            workers.start()

            async def run(*arguments: str) -> int:
                return (await asyncio.to_thread(cli.run, *arguments)).returncode

            async def are_stored() -> bool:
                return await shop.stored() == set(shop.order_ids())

            codes = [await run("backfill", "--since", "60d")]
            await eventually(are_stored)
            codes += [await run("backfill", "list"), await run("reconcile", "--since", "60d")]
            await scene.sql("DELETE FROM orders WHERE order_id = $1", shop.order_ids()[0])
            codes.append(await run("reconcile", "--since", "60d", "--enqueue-missing"))
            await eventually(are_stored)

    assert codes == [0, 0, 0, 1]
    with Redis.from_url(server[0], decode_responses=True) as admin:
        assert admin.acl_log() == []


def test_the_workers_user_can_do_nothing_else(server: tuple[str, str]) -> None:
    assert permitted(server[1], "ingest", [*FORBIDDEN, *OF_A_SOURCE]) == OF_A_SOURCE


def test_each_command_of_each_script_is_allowed(server: tuple[str, str]) -> None:
    assert refused_in_scripts(server[0], "ingest", script_names()) == []


async def test_the_runtime_role_owns_nothing(dsn: str) -> None:
    async with logged_in(dsn) as sql:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await sql.execute("DROP TABLE orders")
        assert await sql.fetchval("SELECT max(version) FROM schema_migrations") == migrations()[-1].version


def test_erasing_with_the_role_of_a_worker_says_which_role_may(cli: Cli, dsn: str) -> None:
    done = cli.run("order", "erase", "A", "--yes", env={"INGEST_POSTGRES_DSN": dsn})

    assert done.returncode == 1
    assert "ingest migrate --api-role" in done.stderr


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_producers_user_can_enqueue_and_do_nothing_else(kind: Kind, cli: Cli, tmp_path: Path) -> None:
    taking = [
        "XREADGROUP GROUP ingest me STREAMS ingest:{orders}:stream >",
        "XRANGE ingest:{orders}:stream - +",
        "XADD ingest:{orders}:dead * a b",
    ]
    (tmp_path / "password").write_text(PASSWORD)
    with kind.server(tmp_path / "server") as running:
        url = create_user(running.url, kind, "ingest-producer")
        own = {"INGEST_STREAM": QUEUE, "INGEST_REDIS_URL": url}
        own["INGEST_REDIS_PASSWORD_FILE"] = str(tmp_path / "password")

        enqueued = cli.run("enqueue", "--sample", "20", "--rate", "100", env=own)
        with Redis.from_url(running.url, decode_responses=True) as admin:
            refused = [entry["object"] for entry in admin.acl_log()]
            queued = admin.xlen(f"ingest:{{{QUEUE}}}:stream")

        assert (enqueued.returncode, queued, refused) == (0, 20, [])
        assert permitted(url, "ingest-producer", [*FORBIDDEN, *taking, *OF_A_SOURCE]) == OF_A_SOURCE
