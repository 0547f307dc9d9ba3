"""Real workers of two hosts that share a refresh token, which changes with each use."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from acceptance.commands import closing_workers
from integration.scene import Scene, ids
from rotating_authority import Reuse, RotatingAuthority, rotating_authority
from support import Cli

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


@pytest.fixture
async def authority() -> AsyncIterator[RotatingAuthority]:
    async with rotating_authority(Reuse.NEVER, latency=0.05) as authority:
        yield authority


@pytest.fixture
def credential(authority: RotatingAuthority, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "seed").write_text("seed\n")
    (tmp_path / "key").write_text(KEY)
    return {
        "INGEST_UPSTREAM_URL": authority.url + "/orders/{order_id}",
        "INGEST_UPSTREAM_AUTH": "oauth2",
        "INGEST_UPSTREAM_OAUTH2_URL": authority.url + "/token",
        "INGEST_UPSTREAM_OAUTH2_CLIENT_ID": "shop",
        "INGEST_UPSTREAM_OAUTH2_GRANT": "refresh_token",
        "INGEST_UPSTREAM_OAUTH2_REFRESH_TOKEN_FILE": str(tmp_path / "seed"),
        "INGEST_UPSTREAM_OAUTH2_REFRESH_STORE": "postgresql",
        "INGEST_UPSTREAM_OAUTH2_STORE_KEY_FILE": str(tmp_path / "key"),
    }


async def test_workers_that_start_and_stop_share_a_refresh_token_with_a_server_that_forgets_it_at_once(
    scene: Scene, cli: Cli, authority: RotatingAuthority, credential: dict[str, str]
) -> None:
    with closing_workers(cli, {**credential, "INGEST_PROCESSES": "2", "INGEST_LOG_FORMAT": "json"}) as workers:
        one, two = workers.start(), workers.start()
        order_ids: list[str] = []
        while authority.rotations < 6:
            order_ids.append(f"order-{len(order_ids)}")
            await scene.enqueue(order_ids[-1])
            await asyncio.sleep(0.02)
            if authority.rotations == 3 and one.process.poll() is None:
                assert await one.stop() == 0
        three = workers.start()
        await scene.enqueue(*(more := ids(20)))
        await scene.finished()

        assert set(await scene.rows()) == {*order_ids, *more}
        assert [await two.stop(), await three.stop()] == [0, 0]

    assert (authority.declined, authority.repeated, authority.peak) == (0, 0, 1)
    content = (await scene.sql("SELECT content FROM credentials"))[0][0]
    assert b"refresh" not in content
    assert b"access" not in content


async def test_a_lost_refresh_token_is_an_outage_until_another_one_is_configured(
    scene: Scene, cli: Cli, credential: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "seed").write_text("lost")
    with closing_workers(cli, {**credential, "INGEST_PROCESSES": "1", "INGEST_LOG_FORMAT": "json"}) as workers:
        await scene.enqueue("A")
        worker = workers.start()
        told = await worker.says("token_unavailable")
        assert "HTTP 400 invalid_grant. If the refresh token is no longer valid, authorize" in told["error"]

        (tmp_path / "seed").write_text("seed")
        await scene.finished()

        assert set(await scene.rows()) == {"A"}
        assert await scene.dead() == []
        assert await worker.stop() == 0


async def test_doctor_uses_the_shared_token(
    scene: Scene, cli: Cli, authority: RotatingAuthority, credential: dict[str, str]
) -> None:
    del scene

    found = [await asyncio.to_thread(cli.run, "doctor", "--order-id", "1", "--all", env=credential) for _ in range(2)]

    assert [done.stdout.count("the credential is accepted") for done in found] == [1, 1], found[1].stdout
    assert (authority.declined, authority.repeated) == (0, 0)
