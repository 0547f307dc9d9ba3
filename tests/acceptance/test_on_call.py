"""Twelve situations of an operator who is on call, diagnosed and repaired with commands only.

All of them, in full size: `make on-call`, which also prints the commands with their output.
"""

import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from rehearsals.on_call import walks_orders, walks_servers
from rehearsals.on_call.stage import Operator, Stage
from support import Cli

from ingest.lab.servers import EmbeddedServers

Walk = Callable[[Stage, Operator], Awaitable[None]]
IS_FULL = os.environ.get("INGEST_TEST_ON_CALL") == "full"
WALKS: dict[str, Walk] = {
    "the external API is down": walks_servers.api_down,
    "the external API is slow": walks_servers.api_slow,
    "the credential is wrong": walks_servers.wrong_credential,
    "an order ends its worker process": walks_orders.poison,
    "PostgreSQL is down": walks_servers.database_down,
    "the table is locked": walks_servers.locked_table,
    "Redis is full": walks_servers.redis_full,
    "a worker process is stuck": walks_servers.stuck_worker,
    "30,000 dead letters of four kinds": walks_orders.many_dead_letters,
    "retries pile up": walks_orders.many_retries,
    "a wrong mapping ran for an hour": walks_orders.wrong_mapping,
    "a customer is to be erased": walks_orders.erased_customer,
}
# The others take longer, or are similar to tests of single commands.
SMALL = ("30,000 dead letters of four kinds", "a wrong mapping ran for an hour")


@pytest.mark.parametrize("title", WALKS if IS_FULL else SMALL)
async def test_an_operator_diagnoses_and_repairs_it_by_commands(
    title: str, servers: EmbeddedServers, cli: Cli, queue_name: str, tmp_path: Path
) -> None:
    async with Stage.open(servers, queue_name, cli, tmp_path, 1.0 if IS_FULL else 0.01) as stage:
        operator = stage.operator(title)
        try:
            await WALKS[title](stage, operator)
            operator.transcript.repaired = time.monotonic() - operator.transcript.began
        finally:
            if IS_FULL:
                sys.stdout.write(f"\n{operator.transcript.text()}\n{operator.transcript.row()}\n")
