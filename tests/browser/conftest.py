"""For these tests: a browser, and a deployment that they share. All of them run in one event loop, which both need.

Without a browser they are left out, which `make servers` and the header of a test run report.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from browser.deployment import Deployment
from browser.visitor import Visitor, chromium
from playwright.async_api import Browser
from servers.get import CHROMIUM
from support import connected, with_database

from ingest.lab.servers import EmbeddedServers
from ingest.store.schema import migrate, migrations

collect_ignore_glob = [] if CHROMIUM.is_there() else ["test_*.py"]
Visit = Callable[..., AbstractAsyncContextManager[Visitor]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this folder in the event loop of the browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents and isinstance(item, pytest.Function):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def deployment(servers: EmbeddedServers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    """Processes and shops that all tests share. A test uses its own IDs and leaves each shop as it was."""
    async with connected(servers.postgres_dsn) as connection:
        await connection.execute("CREATE DATABASE browser")
    dsn = with_database(servers.postgres_dsn, "browser")
    await migrate(dsn, migrations())
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "COLUMNS"))}
    folder = await asyncio.to_thread(tmp_path_factory.mktemp, "deployment")
    async with Deployment.open(servers.redis_url, dsn, folder, inherited) as deployment:
        await deployment.plant()
        yield deployment


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, deployment: Deployment) -> Visit:
    """Opens a browser for the console: `async with visit(width=360) as visitor`."""
    return partial(Visitor.open, browser, deployment.url)


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(visit: Visit) -> AsyncIterator[Visitor]:
    """A visitor who is not signed in, and whose browser must report no problem."""
    async with visit() as visitor:
        yield visitor
        assert visitor.problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def signed_in(visit: Visit, deployment: Deployment) -> AsyncIterator[Callable[..., Any]]:
    """Opens a browser that is signed in: `visitor = await signed_in("operate")`. It must report no problem."""
    async with AsyncExitStack() as stack:
        visitors = []

        async def sign_in(role: str = "operate", **options: Any) -> Visitor:
            visitor = await stack.enter_async_context(visit(**options))
            await visitor.sign_in(deployment.keys[role])
            visitors.append(visitor)
            return visitor

        yield sign_in
        assert [problem for visitor in visitors for problem in visitor.problems] == []
