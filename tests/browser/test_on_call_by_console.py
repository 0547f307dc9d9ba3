"""Situations of an operator who is on call, diagnosed and repaired on the console only.

All of them, in full size: `make on-call`, which also prints the steps.
"""

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from browser import console_walks
from browser.console_operator import ConsoleOperator
from playwright.async_api import Browser
from rehearsals.on_call.stage import Stage
from support import Cli

from ingest.lab.servers import EmbeddedServers

Walk = Callable[[Stage, ConsoleOperator], Awaitable[None]]
IS_FULL = os.environ.get("INGEST_TEST_ON_CALL") == "full"
WALKS: dict[str, Walk] = {
    "the external API is down": console_walks.api_down,
    "the external API is slow": console_walks.api_slow,
    "the credential is wrong": console_walks.wrong_credential,
    "PostgreSQL is down": console_walks.database_down,
    "the table is locked": console_walks.locked_table,
    "Redis is full": console_walks.redis_full,
    "a worker process is stuck": console_walks.stuck_worker,
    "an order ends its worker process": console_walks.poison,
    "30,000 dead letters of four kinds": console_walks.many_dead_letters,
    "retries pile up": console_walks.many_retries,
    "a wrong mapping was used": console_walks.wrong_mapping,
    "a customer is to be erased": console_walks.erased_customer,
}
PREPARATIONS: dict[str, Callable[[Stage], None]] = {"a wrong mapping was used": console_walks.use_wrong_mapping}
# The tests of the pages cover the others.
SMALL = ("30,000 dead letters of four kinds", "the table is locked", "a worker process is stuck")


@pytest.mark.parametrize("title", WALKS if IS_FULL else SMALL)
async def test_an_operator_diagnoses_and_repairs_it_on_the_console(
    title: str, servers: EmbeddedServers, cli: Cli, queue_name: str, tmp_path: Path, browser: Browser
) -> None:
    size = 1.0 if IS_FULL else 0.01
    async with Stage.open(servers, queue_name, cli, tmp_path, size) as stage:
        if title in PREPARATIONS:
            PREPARATIONS[title](stage)
        async with ConsoleOperator.open(stage, browser, title) as operator:
            operator.steps.began = time.monotonic()
            await WALKS[title](stage, operator)
            operator.steps.repaired = time.monotonic() - operator.steps.began
            if IS_FULL:
                print(f"\n{operator.steps.text()}\n{operator.steps.row()}")  # noqa: T201  what it is for
