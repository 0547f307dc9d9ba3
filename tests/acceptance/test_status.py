"""`ingest status` with real workers on each server: live and stale workers, and the reason of an outage."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from acceptance.commands import Workers, closing_workers
from integration.scene import Scene, ids
from servers.kinds import KINDS, Kind
from support import Cli, becomes, closing_cli, eventually


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def scene(request: pytest.FixtureRequest, dsn: str, queue_name: str, tmp_path: Path) -> AsyncIterator[Scene]:
    kind: Kind = request.param
    with kind.server(tmp_path / "server") as server:
        async with Scene.open(server.url, dsn, queue_name) as scene:
            yield scene


@pytest.fixture
def cli(scene: Scene, env: dict[str, str]) -> Any:
    own = {
        "INGEST_REDIS_URL": scene.redis_url,
        "INGEST_UPSTREAM_URL": scene.api.url_template,
        "INGEST_LOG_LEVEL": "debug",
    }
    with closing_cli({**env, **own}) as cli:
        yield cli


@pytest.fixture
def workers(cli: Cli) -> Any:
    with closing_workers(cli, {}) as workers:
        yield workers


async def status(cli: Cli) -> Any:
    done = await asyncio.to_thread(cli.run, "status", "--json")
    return json.loads(done.stdout)


async def table(cli: Cli, code: int = 0, **env: str) -> str:
    done = await asyncio.to_thread(cli.run, "status", env=env)
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


async def test_workers_that_have_nothing_to_do_are_alive_and_a_killed_one_is_stale(cli: Cli, workers: Workers) -> None:
    idle = workers.start(processes=2, heartbeat_ttl=1)

    async def states() -> list[str]:
        return [consumer["state"] for consumer in (await status(cli))["consumers"]]

    await becomes(states, ["alive", "alive"])
    shown = await table(cli)
    idle.ask_group(signal.SIGKILL)
    await becomes(states, ["stale", "stale"])

    assert [line.split()[-1] for line in shown.splitlines()[-2:]] == ["alive", "alive"]
    assert "stale for" in await table(cli)


async def test_an_open_circuit_is_shown_with_its_cause_until_it_closes(
    scene: Scene, cli: Cli, workers: Workers
) -> None:
    scene.api.behave(token="right", any_id=True)
    workers.start(processes=2, upstream_token="s3cr3t", heartbeat_ttl=2)
    await scene.enqueue(*ids(50))

    async def open_everywhere() -> Any:
        found = await status(cli)
        return found if [bool(one["reasons"]) for one in found["consumers"]] == [True, True] else None

    # The other process notices it with its next order.
    async def closed_somewhere() -> bool:
        return any(not one["reasons"] for one in (await status(cli))["consumers"])

    found = await eventually(open_everywhere)
    shown = await table(cli, 1, COLUMNS="80")
    scene.api.behave(token=None)
    await scene.stored_at_least(50)
    await eventually(closed_somewhere)

    [reason] = found["condition"]["reasons"]
    assert (found["condition"]["state"], reason["server"]) == ("circuit_open", "external API")
    assert reason["text"] == "HTTP 401: the external API rejects our credential"
    assert "circuit open" in shown
    assert "external API: HTTP 401: the external API rejects our credential (for" in " ".join(shown.split())
    assert "s3cr3t" not in shown + json.dumps(found)
    assert max(map(len, shown.splitlines())) <= 80


async def test_of_many_consumers_the_table_shows_those_in_trouble_and_json_all(scene: Scene, cli: Cli) -> None:
    seconds, _ = await scene.redis.time()
    await scene.redis.xgroup_create(scene.keys.stream, "ingest", mkstream=True)
    alive = {f"w-{number:04}": (seconds + 600) * 1000 for number in range(1_000)}
    await scene.redis.zadd(scene.keys.alive, {**alive, "w-0777": (seconds - 60) * 1000})

    shown, found = await table(cli), await status(cli)

    lines = shown.splitlines()
    assert lines[-1] == "and 980 more: --json shows all"
    assert "w-0777" in shown
    assert "w-0000" in shown
    assert "w-0999" not in shown
    assert len(found["consumers"]) == 1_000


async def test_nothing_that_a_consumers_name_says_steers_a_terminal(scene: Scene, cli: Cli) -> None:
    await scene.redis.xgroup_create(scene.keys.stream, "ingest", mkstream=True)
    await scene.redis.xgroup_createconsumer(scene.keys.stream, "ingest", "\x1b[31m[bold]x")

    assert "\\x1b[31m[bold]x" in await table(cli)
