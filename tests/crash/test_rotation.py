"""Four processes of two hosts share a refresh token that changes with each use, are killed at each moment, and are never locked out."""

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest
from rotating_authority import Reuse, RotatingAuthority, rotating_authority
from support import Process, start_program

REFRESHER = Path(__file__).with_name("refresher.py")
# With INGEST_TEST_ROTATIONS=50, each combination of a server and a store takes up to a minute.
ROTATIONS = int(os.environ.get("INGEST_TEST_ROTATIONS", "3"))
COMBINATIONS = [
    (Reuse.GRACE, "postgresql"),
    (Reuse.UNTIL_REPLACEMENT_IS_USED, "file"),
    *(
        [
            (Reuse.UNTIL_ACCESS_TOKEN_IS_USED, "postgresql"),
            (Reuse.GRACE, "file"),
            (Reuse.UNTIL_REPLACEMENT_IS_USED, "postgresql"),
            (Reuse.UNTIL_ACCESS_TOKEN_IS_USED, "file"),
        ]
        if ROTATIONS >= 50
        else []
    ),
]
KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
# Orders of a life that ends at any moment.
ORDERS = 20
# `after_commit` is the moment between the server's commit and its response.
# A life with `any` lasts for a while, so that a process refreshes whatever the others leave behind, and is killed from outside.
MOMENTS = (
    "after_commit",
    "before_put",
    "any",
    "during_put",
    "after_put",
    "any",
    "after_mark",
    "before_mark",
    "any",
    "locked",
)
# The moments after which a server that immediately forgets a used refresh token has locked the source out.
LOST_WITH_A_STRICT_SERVER = ("after_commit", "before_put", "during_put", "any")


@dataclass
class Refresher:
    """A process of a host, which is started again whenever it has died."""

    env: dict[str, str]
    moments: Iterator[str]
    lines: list[str] = field(default_factory=list)
    deaths: int = 0
    errors: str = ""

    def start(self, authority: RotatingAuthority) -> None:
        self.moment = next(self.moments)
        self.lines.clear()
        self.process: Process = start_program(REFRESHER, self.moment, env=self.env)
        if self.moment == "after_commit":
            authority.kills.add(self.process.pid)
        self.readers = [Thread(target=self._read, daemon=True), Thread(target=self._read_errors, daemon=True)]
        for reader in self.readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors += self.process.stderr.read()

    def renew(self, authority: RotatingAuthority) -> None:
        if self.moment == "any" and len(self.lines) > ORDERS:
            self._kill()
        if self.process.poll() is not None:
            self.end()
            assert self.process.returncode == -signal.SIGKILL, self.errors
            self.deaths += 1
            self.start(authority)

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # it has just killed itself
            self.process.kill()

    def end(self) -> None:
        self._kill()
        self.process.wait()
        for reader in self.readers:
            reader.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def refreshers(env: dict[str, str], url: str, store: str, folder: Path, moments: tuple[str, ...]) -> list[Refresher]:
    """Two processes on each of two hosts. Each host has its own files with the same refresh token and the same key."""
    found = []
    lives = itertools.cycle(moments)
    for host in ("one", "two"):
        files = folder / host
        files.mkdir()
        (files / "seed").write_text("seed")
        (files / "key").write_text(f"# The key of the stored tokens.\n{KEY}\n")
        found += [
            Refresher(
                {
                    **env,
                    "INGEST_UPSTREAM_URL": url + "/orders/{order_id}",
                    "INGEST_UPSTREAM_AUTH": "oauth2",
                    "INGEST_UPSTREAM_OAUTH2_URL": url + "/token",
                    "INGEST_UPSTREAM_OAUTH2_CLIENT_ID": "shop",
                    "INGEST_UPSTREAM_OAUTH2_CLIENT_SECRET": "s3cr3t",
                    "INGEST_UPSTREAM_OAUTH2_GRANT": "refresh_token",
                    "INGEST_UPSTREAM_OAUTH2_REFRESH_TOKEN_FILE": str(files / "seed"),
                    "INGEST_UPSTREAM_OAUTH2_REFRESH_STORE": store,
                    "INGEST_UPSTREAM_OAUTH2_STORE_KEY_FILE": str(files / "key"),
                },
                lives,
            )
            for _ in range(2)
        ]
    return found


async def run(authority: RotatingAuthority, processes: list[Refresher]) -> None:
    """Run the processes until there were enough rotations, and expect that all of them work in the end."""
    try:
        for process in processes:
            process.start(authority)
        await go_on(authority, processes, lambda: authority.rotations >= ROTATIONS)
        for process in processes:
            process.moments = itertools.repeat("never")
            process.lines.clear()
        enough = authority.rotations + 1
        await go_on(
            authority,
            processes,
            lambda: authority.rotations >= enough and all(len(process.lines) > ORDERS for process in processes),
        )
    finally:
        for process in processes:
            process.end()


async def go_on(authority: RotatingAuthority, processes: list[Refresher], until: Callable[[], bool]) -> None:
    """Start processes again until a condition is true. No process may be locked out."""
    async with asyncio.timeout(180):
        while not until():
            await asyncio.sleep(0.01)
            for process in processes:
                process.renew(authority)
                assert not [line for line in process.lines if line != "fetched"]


@pytest.mark.parametrize(("reuse", "store"), COMBINATIONS)
async def test_no_death_locks_the_processes_out_while_the_server_accepts_a_repeated_request(
    env: dict[str, str], tmp_path: Path, reuse: Reuse, store: str
) -> None:
    where = store if store == "postgresql" else str(tmp_path / "tokens")
    async with rotating_authority(reuse, latency=0.05) as authority:
        processes = refreshers(env, authority.url, where, tmp_path, MOMENTS)

        await run(authority, processes)

        assert authority.declined == 0
        assert authority.peak == 1
        assert sum(process.deaths for process in processes) >= ROTATIONS // 2
        assert authority.repeated > 0
        print(  # noqa: T201
            f"{reuse.value}, {store}: {authority.rotations} rotations, {authority.repeated} repeated requests,"
            f" {sum(process.deaths for process in processes)} deaths, {authority.orders} orders"
        )


async def test_a_strict_server_locks_the_processes_out_only_between_its_commit_and_the_storage_of_its_response(
    env: dict[str, str], tmp_path: Path
) -> None:
    moments = tuple(moment for moment in MOMENTS if moment not in LOST_WITH_A_STRICT_SERVER)
    async with rotating_authority(Reuse.NEVER) as authority:
        processes = refreshers(env, authority.url, "postgresql", tmp_path, moments)

        await run(authority, processes)

        assert (authority.declined, authority.repeated) == (0, 0)
        assert sum(process.deaths for process in processes) >= ROTATIONS // 2
