"""The files that a source depends on, corrected while real workers run."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from acceptance.commands import Workers, closing_workers
from acceptance.several_sources import MAPPING
from integration.scene import Scene, ids
from support import Cli, eventually

ORDERS = ids(200)


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    return written(tmp_path / "own.toml", MAPPING.format(country="wrong"))


@pytest.fixture(params=["a source of a file", "the only source"])
def workers(request: pytest.FixtureRequest, cli: Cli, scene: Scene, mapping: Path) -> Iterator[Workers]:
    env = {"INGEST_STREAM": scene.queue, "INGEST_LOG_FORMAT": "json"}
    if request.param == "the only source":
        env |= {"INGEST_UPSTREAM_URL": scene.api.url_template, "INGEST_MAPPING": str(mapping)}
    else:
        file = mapping.with_name("sources.toml")
        file.write_text(f'[sources.a]\nmapping = "own.toml"\nupstream.url = "{scene.api.url_template}"\n')
        env["INGEST_SOURCES"] = str(file)
    with closing_workers(cli, env) as workers:
        yield workers


async def test_orders_are_not_fetched_again_before_the_workers_use_the_corrected_mapping(
    cli: Cli, scene: Scene, workers: Workers, mapping: Path
) -> None:
    """The operator does not wait for the workers, and repeats what is refused."""
    command = workers.start(processes=2)
    await run(cli, workers, "enqueue", *ORDERS)
    await eventually(lambda: are_stored(scene, "wrong"), within=60.0)
    written(mapping, MAPPING.format(country="right"))

    refused = list[str]()
    for arguments in (["--status", "placed"], ["--status", "cancelled"], ORDERS[:1]):
        fetch = partial(cli.run, "order", "refetch", *arguments, "--yes", env=workers.env)

        async def is_accepted(fetch: Callable[[], CompletedProcess[str]] = fetch) -> bool:
            done = await asyncio.to_thread(fetch)
            refused.extend([done.stderr] if done.returncode else [])
            return not done.returncode

        await eventually(is_accepted, within=60.0)

    await eventually(lambda: are_stored(scene, "right"), within=60.0)
    assert all("another version of own.toml" in each for each in refused), refused
    assert (await command.says("sources_reloaded"))["file"] == str(mapping)
    assert await command.stop() == 0


async def test_a_mapping_that_no_worker_uses_is_named_before_orders_are_fetched_or_remapped(
    cli: Cli, scene: Scene, workers: Workers, mapping: Path
) -> None:
    command = workers.start(processes=2)
    await run(cli, workers, "enqueue", *ORDERS)
    await eventually(lambda: are_stored(scene, "wrong"), within=60.0)

    written(mapping, "[order")

    named = "2 workers use another version of own.toml"
    for arguments in (["order", "refetch", "--status", "placed", "--yes"], ["order", "refetch", ORDERS[0]], ["status"]):
        done = await asyncio.to_thread(cli.run, *arguments, env=workers.env)
        assert named in done.stderr + done.stdout, (arguments, done.stderr, done.stdout)
        assert arguments == ["status"] or done.returncode == 1
    written(mapping, MAPPING.format(country="wrong"))
    await eventually(lambda: are_told_nothing(cli, workers, named), within=60.0)
    assert await command.stop() == 0


async def are_told_nothing(cli: Cli, workers: Workers, text: str) -> bool:
    """Whether the state is reported without a text."""
    done = await asyncio.to_thread(cli.run, "status", env=workers.env)
    return text not in done.stdout + done.stderr


async def test_a_mapping_that_cannot_be_used_changes_nothing_and_is_reported(
    cli: Cli, scene: Scene, workers: Workers, mapping: Path
) -> None:
    command = workers.start(processes=1)
    await command.says("process_started", process="worker-0")

    written(mapping, "[order")

    problem = str((await command.says("sources_not_reloaded"))["problem"])
    assert str(mapping) in problem
    await run(cli, workers, "enqueue", *ORDERS)
    await eventually(lambda: are_stored(scene, "wrong"), within=60.0)
    assert not command.events("stopped")
    assert await command.stop() == 0


def written(file: Path, text: str) -> Path:
    """Write a file, and return its path."""
    file.write_text(text)
    return file


async def run(cli: Cli, workers: Workers, *arguments: str) -> None:
    """Run a command with the settings of the workers."""
    done = await asyncio.to_thread(cli.run, *arguments, env=workers.env)
    assert done.returncode == 0, done.stderr


async def are_stored(scene: Scene, country: str) -> bool:
    """Whether all orders are stored with this country."""
    query = "SELECT count(*) FROM orders WHERE country = $1 AND order_id = ANY ($2::text[])"
    return int((await scene.sql(query, country, ORDERS))[0][0]) == len(ORDERS)
