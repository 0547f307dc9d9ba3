"""Commands whose INGEST_REDIS_URL leads to another program than Redis fail at once, in one line."""

import asyncio

import pytest
from foreign import echo, http, ones
from listener import Serve, listening
from support import Cli


@pytest.mark.parametrize("answer", [echo, http], ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("command", [["worker"], ["enqueue", "536365"], ["status"], ["dead", "list"]], ids=" ".join)
async def test_every_command_reports_that_the_server_is_not_redis(cli: Cli, answer: Serve, command: list[str]) -> None:
    async with listening(answer) as port:
        done = await asyncio.to_thread(cli.run, *command, env={"INGEST_REDIS_URL": f"redis://127.0.0.1:{port}/0"})

    assert done.returncode == 1
    assert "the server is not Redis" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["worker"], ["enqueue", "536365"], ["status"], ["dead", "list"]], ids=" ".join)
async def test_invalid_replies_from_a_server_like_redis_are_one_line(cli: Cli, command: list[str]) -> None:
    async with listening(ones) as port:
        done = await asyncio.to_thread(
            cli.run, *command, env={"INGEST_REDIS_URL": f"redis://127.0.0.1:{port}/0"}, timeout=20
        )

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
