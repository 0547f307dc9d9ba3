"""`ingest source list` and `ingest source check` with several sources."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from redis import Redis
from support import Cli

from ingest.domain.source_name import queue_of
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.queue.layout.keys import Keys


@pytest.fixture
async def shops(cli: Cli, tmp_path: Path) -> AsyncIterator[Cli]:
    """Sources whose orders can be fetched, with a wrong credential, with a wrong mapping, and with a missing file."""
    async with (
        SimulatedApi(Behaviour(any_id=True)) as good,
        SimulatedApi(Behaviour(any_id=True, token="right")) as strict,
    ):
        (tmp_path / "secret").write_text("a shared secret\n")
        (tmp_path / "sources.toml").write_text(f"""
            [sources.good]
            transform = "operator:add"
            upstream = {{ url = "{good.url_template}", rate = 7 }}
            webhook = {{ profile = "shopify", secret_files = ["secret"] }}

            [sources.strict]
            upstream = {{ url = "{strict.url_template}", token = "wr0ng" }}
            webhook = {{ profile = "shopify", secret_files = ["none"] }}

            [sources.other-shape]
            mapping = "shopify"
            upstream.url = "{good.url_template}"

            [sources.unreadable]
            upstream = {{ url = "{good.url_template}", token_file = "none" }}
        """)
        cli.env["INGEST_SOURCES"] = str(tmp_path / "sources.toml")
        yield cli


async def test_the_list_has_the_queue_and_the_state_of_each_source(shops: Cli, redis_url: str, queue_name: str) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.xadd(Keys.of(queue_of(queue_name, "strict")).stream, {"order_id": "17"})

    shown, as_json = await run(shops, "list"), await run(shops, "list", "--json")

    states = {state["source"]: state for state in map(json.loads, as_json.stdout.splitlines())}
    assert [line.split()[:3] for line in shown.stdout.splitlines()[:5]] == [
        ["source", "waiting", "pending"],
        ["good", "0", "0"],
        ["strict", "1", "0"],
        ["other-shape", "0", "0"],
        ["unreadable", "0", "0"],
    ]
    assert (states["good"]["quota"]["rate"], states["good"]["condition"]["state"]) == (7.0, "no_worker")
    assert states["strict"]["queue"]["oldest_age"] is not None


async def test_a_check_shows_an_order_of_the_source(shops: Cli) -> None:
    done = await run(shops, "check", "good", "--id", "17")

    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[0] == "source good"
    assert {"order_id 17", "ok settings the transform operator:add can be loaded"} <= set(lines)
    assert "ok settings the webhook /v1/webhooks/good can be received: 1 secret can be read" in lines


async def test_each_source_is_checked_and_an_error_names_the_key_and_no_secret(shops: Cli, redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis:
        for name in ("good", "strict", "other-shape"):
            redis.xadd(Keys.of(queue_of(shops.env["INGEST_STREAM"], name)).stream, {"order_id": "17"})

    done = await run(shops, "check", "--json")

    checks = {check["source"]: check for check in map(json.loads, done.stdout.splitlines())}
    errors = {
        name: [f"{each['what']} -> {each['advice']}" for each in check["findings"] if each["level"] == "error"]
        for name, check in checks.items()
    }
    assert done.returncode == 1
    assert checks["good"]["row"]["order_id"] == "17"
    assert errors["good"] == []
    secrets, credential = errors["strict"]
    assert "sources.strict.webhook.secret_files: cannot read" in secrets
    assert "order 17: HTTP 401" in credential
    assert "check sources.strict.upstream.auth" in credential
    assert "correct the mapping (sources.other-shape.mapping)" in errors["other-shape"][0]
    assert "sources.unreadable.upstream.token_file: cannot read" in errors["unreadable"][0]
    assert "wr0ng" not in done.stdout + done.stderr


async def test_a_wrong_name_is_an_error_that_lists_the_sources(shops: Cli) -> None:
    done = await run(shops, "check", "goood")
    several = await run(shops, "check", "--id", "17")

    assert (done.returncode, done.stderr) == (
        2,
        "ingest: there is no source 'goood': the sources are good, other-shape, strict, unreadable\n",
    )
    assert several.returncode == 2
    assert "name the source" in several.stderr


async def test_without_a_sources_file_the_only_source_is_listed_and_checked(cli: Cli) -> None:
    async with SimulatedApi(Behaviour(any_id=True)) as api:
        cli.env["INGEST_UPSTREAM_URL"] = api.url_template

        listed, checked = await run(cli, "list"), await run(cli, "check", "--id", "17")

    assert listed.stdout.splitlines()[1].split()[0] == "(unnamed)"
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "order_id" in checked.stdout


async def run(cli: Cli, *given: str) -> CompletedProcess[str]:
    """Run `ingest source` while the simulated APIs respond in this process."""
    return await asyncio.to_thread(cli.run, "source", *given)


async def test_a_mapping_is_checked_with_the_source_that_it_belongs_to(shops: Cli) -> None:
    named = await asyncio.to_thread(shops.run, "mapping", "check", "--source", "other-shape", "--id", "17")
    without = await asyncio.to_thread(shops.run, "mapping", "check", "--source", "good", "--id", "17")

    assert named.returncode == 1
    assert "the document does not fit the mapping" in named.stderr
    assert without.stderr == "ingest: there is no mapping: set sources.good.mapping, or give --mapping\n"
