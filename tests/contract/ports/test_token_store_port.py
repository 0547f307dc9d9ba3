"""The guarantees of `ingest.domain.fetch.token_store.TokenStore`, of each implementation."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest
from servers.postgres_sites import SITE_KINDS, Site, SiteKind
from support import connected, start_program

from ingest.domain.fetch.token_store import TokenStore, TokenStoreUnavailable
from ingest.store.credentials import CredentialRow
from ingest.store.schema import migrations
from ingest.upstream.access.token_file import TokenFile

[CREATE] = [migration.sql for migration in migrations() if migration.name == "credentials"]
HOLDER = Path(__file__).parents[2] / "token_holder.py"


class Place(Protocol):
    """Where a store is."""

    def open(self) -> TokenStore:
        """Open it, as each process does."""

    @property
    def words(self) -> list[str]:
        """The arguments by which another process opens it."""


class File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self.words = ["file", str(path)]

    def open(self) -> TokenStore:
        return TokenFile(self._path)


class Row:
    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.words = ["postgresql", dsn]

    def open(self) -> TokenStore:
        return CredentialRow(self._dsn, "shop-de")


@pytest.fixture(scope="module")
def sites() -> Iterator["cache[Site]"]:
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(kind.open()))


@pytest.fixture(params=["file", *SITE_KINDS], ids=lambda kind: kind if isinstance(kind, str) else kind.name)
def place(request: pytest.FixtureRequest, sites: "cache[Site]", tmp_path: Path) -> Place:
    if not isinstance(request.param, SiteKind):
        return File(tmp_path / "tokens")
    site = sites(request.param)

    async def create() -> None:
        async with connected(site.postgres.dsn) as sql:
            await sql.execute("DROP TABLE IF EXISTS credentials")
            await sql.execute(CREATE)

    asyncio.run(create())
    return Row(site.dsn)


async def test_a_content_is_read_back_by_every_process(place: Place) -> None:
    assert (await place.open().read()).content is None

    async with place.open().lock() as held:
        assert held is not None
        assert held.stored.content is None
        await held.put(b"1")

    first = await place.open().read()
    async with place.open().lock() as held:
        assert held is not None
        assert held.stored.content == first.content == b"1"
        assert held.stored.now >= first.now


async def test_one_process_at_a_time_holds_the_lock_and_others_may_read(place: Place) -> None:
    async with place.open().lock() as held:
        assert held is not None
        async with place.open().lock() as other:
            assert other is None
        await held.mark(b"marked")
        async with place.open().lock() as other:
            assert other is None
        assert (await place.open().read()).content == held.stored.content == b"marked"
        await held.put(b"done")

    assert (await place.open().read()).content == b"done"
    async with place.open().lock() as held:
        assert held is not None


async def test_a_holder_that_is_killed_leaves_the_last_content_and_no_lock(place: Place) -> None:
    holder = start_program(HOLDER, *place.words, env={})
    assert holder.stdout is not None
    assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
    async with place.open().lock() as held:
        assert held is None

    holder.kill()
    await asyncio.to_thread(holder.communicate)

    assert holder.returncode == -signal.SIGKILL
    async with asyncio.timeout(5):
        while True:
            async with place.open().lock() as held:
                if held is not None:
                    assert held.stored.content == b"marked by another process"
                    return
            await asyncio.sleep(0.01)


async def test_a_cancelled_holder_leaves_no_lock_on_a_file(tmp_path: Path) -> None:
    store = TokenFile(tmp_path / "tokens")

    async def hold() -> None:
        async with store.lock():
            await asyncio.Event().wait()

    for turns in range(50):
        holding = asyncio.create_task(hold())
        for _ in range(turns):
            await asyncio.sleep(0)
        holding.cancel()
        await asyncio.wait([holding])

    async with TokenFile(tmp_path / "tokens").lock() as held:
        assert held is not None


async def test_a_store_that_cannot_be_used_is_named(tmp_path: Path, empty_dsn: str) -> None:
    for store, name in (
        (TokenFile(tmp_path / "missing" / "tokens"), "missing/tokens: No such file"),
        (CredentialRow(empty_dsn, ""), "run `ingest migrate`"),
        (CredentialRow("postgresql://127.0.0.1:1/x?user=u", ""), "PostgreSQL: "),
    ):
        with pytest.raises(TokenStoreUnavailable, match=name):
            async with store.lock():
                pytest.fail("locked")


async def test_a_lock_that_postgresql_has_ended_stores_nothing(dsn: str) -> None:
    store = CredentialRow(dsn, "")
    async with store.lock() as held, connected(dsn) as sql:
        assert held is not None
        await sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in trans%'")

        with pytest.raises(TokenStoreUnavailable):
            await held.put(b"late")

    assert (await store.read()).content is None
