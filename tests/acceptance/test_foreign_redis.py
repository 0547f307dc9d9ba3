"""Commands whose INGEST_REDIS_URL leads to another program than Redis fail immediately, in one line."""

import asyncio

import pytest
from foreign import echo, http, ones
from listener import Serve, listening
from support import Cli

NO_REDIS = "the server is not Redis"


@pytest.mark.parametrize(
    ("answer", "says"), [(echo, NO_REDIS), (http, NO_REDIS), (ones, "")], ids=["echo", "http", "ones"]
)
@pytest.mark.parametrize("command", [["worker"], ["enqueue", "536365"], ["status"], ["dead", "list"]], ids=" ".join)
async def test_every_command_reports_that_the_server_is_not_redis(
    cli: Cli, answer: Serve, says: str, command: list[str]
) -> None:
    async with listening(answer) as port:
        env = {"INGEST_REDIS_URL": f"redis://127.0.0.1:{port}/0"}
        done = await asyncio.to_thread(cli.run, *command, env=env, timeout=20)

    assert done.returncode == 1
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
