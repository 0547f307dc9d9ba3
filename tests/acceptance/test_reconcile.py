"""`ingest reconcile` as a real process names all missing orders."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
from dead_letter_entries import dead_fields
from redis import Redis
from support import Cli, eventually_sync

from ingest.queue.layout.keys import Keys

NOWHERE_REDIS = "redis://127.0.0.1:1/0"


@pytest.fixture
def service(redis_url: str, dsn: str, queue_name: str) -> Iterator["Orders"]:
    with Redis.from_url(redis_url) as redis:
        yield Orders(redis, Keys.of(queue_name), dsn)


class Orders:
    """Puts orders into the locations where they may be."""

    def __init__(self, redis: "Redis", keys: Keys, dsn: str) -> None:
        self.redis = redis
        self.keys = keys
        self._dsn = dsn

    def queue(self, *order_ids: str) -> None:
        for order_id in order_ids:
            self.redis.xadd(self.keys.stream, {"order_id": order_id})

    def dead_letter(self, order_id: str) -> None:
        self.redis.xadd(self.keys.dead, dead_fields(order_id))

    def store(self, *order_ids: str) -> None:
        asyncio.run(self._store(order_ids))

    async def _store(self, order_ids: tuple[str, ...]) -> None:
        connection = await asyncpg.connect(self._dsn)
        try:
            now = datetime.now(UTC)
            await connection.executemany(
                "INSERT INTO orders (order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at,"
                " attempts, enqueued_at, ingested_at) VALUES ($1, 'placed', 'EUR', $2, 0, 0, '[]', $2, $2, 1, $2, $2)",
                [(order_id, now) for order_id in order_ids],
            )
        finally:
            await connection.close()


def numbered(first: int, last: int) -> list[str]:
    return [f"o-{number:05}" for number in range(first, last)]


def test_every_missing_order_is_named_in_a_file(cli: Cli, service: Orders, tmp_path: Path) -> None:
    (tmp_path / "accepted.txt").write_text("\n".join(numbered(0, 2_000)))
    service.store(*numbered(0, 900))
    service.dead_letter("o-00900")
    service.queue("o-00901")

    done = cli.run("reconcile", "--file", str(tmp_path / "accepted.txt"), "--missing", str(tmp_path / "missing.txt"))

    assert (done.returncode, done.stdout) == (1, "")
    assert (tmp_path / "missing.txt").read_text() == "".join(f"{name}\n" for name in numbered(902, 2_000))
    facts = {line.split("  ")[0]: line.removeprefix(line.split("  ")[0]).split()[0] for line in done.stderr.splitlines() if "  " in line}  # fmt: skip
    assert (facts["accepted"], facts["stored"], facts["dead letters"], facts["LOST"]) == ("2,000", "900", "1", "1,098")
    assert f"1,098 missing orders in {tmp_path}/missing.txt" in done.stderr


def test_missing_orders_can_be_announced_through_a_pipe(cli: Cli, service: Orders) -> None:
    service.store("a", "c")
    command = f"{sys.executable} -m ingest reconcile a b c d --missing - | {sys.executable} -m ingest enqueue -"

    done = subprocess.run(["sh", "-c", command], env=cli.env, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0
    assert done.stdout.startswith("2 accepted")
    assert [fields[b"order_id"] for _, fields in service.redis.xrange(service.keys.stream)] == [b"b", b"d"]
    assert cli.run("reconcile", "a", "b", "c", "d").returncode == 0


def test_when_nothing_is_missing_the_exit_code_is_0_and_the_file_is_empty(
    cli: Cli, service: Orders, tmp_path: Path
) -> None:
    service.store("a")

    done = cli.run("reconcile", "-", "--missing", str(tmp_path / "missing"), stdin="a\n\na\n")

    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "missing").read_text() == ""
    assert "LOST" in done.stderr


def test_scripts_get_one_json_object(cli: Cli, service: Orders) -> None:
    service.store("a", "x")

    part = cli.run("reconcile", "a", "b", "--json")
    whole = cli.run("reconcile", "a", "--complete", "--json")

    report = json.loads(part.stdout)
    assert (part.returncode, report["accepted"], report["stored"], report["lost"]) == (
        1, 2, 1, {"count": 1, "examples": ["b"]},
    )  # fmt: skip
    assert (report["clean"], report["settled"], report["unexpected"]["count"]) == (False, True, 0)
    report = json.loads(whole.stdout)
    assert (whole.returncode, report["lost"]["count"], report["unexpected"]["examples"]) == (1, 0, ["x"])


def test_an_invalid_line_is_reported_and_fails_the_command(cli: Cli, service: Orders) -> None:
    service.store("a", "b")

    done = cli.run("reconcile", "-", "--json", stdin="a\nno\torder\nb\n")

    assert done.returncode == 1
    assert "stdin, line 2: " in done.stderr
    report = json.loads(done.stdout)
    assert (report["accepted"], report["lost"]["count"], report["invalid"]) == (2, 0, 1)


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "expected"),
    [
        ([], "", 2, "or order IDs or --file (`-` for stdin): see `ingest reconcile --help`"),
        (["a", "--file", "ids.txt"], "", 2, "or order IDs or --file (`-` for stdin): see `ingest reconcile --help`"),
        (["a", "--missing", "-", "--json"], "", 2, "--missing -"),
        (["--since", "2d", "--missing", "-", "--json"], "", 2, "--missing -"),
        (["a", "--force"], "", 2, "--missing"),
        (["a", "--missing", "."], "", 1, "folder"),
        (["--file", "/nowhere"], "", 1, "No such file"),
        (["-", "--format", "csv", "--column", "id"], 'id\na\n"b\nc\n', 1, "line 3 of stdin"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_wrong_use_is_one_line(cli: Cli, arguments: list[str], stdin: str, code: int, expected: str) -> None:
    done = cli.run("reconcile", *arguments, stdin=stdin)

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    assert expected in done.stderr


def test_an_unavailable_server_is_one_line_and_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    done = cli.run("reconcile", "a", "--missing", str(tmp_path / "missing"), env={"INGEST_REDIS_URL": NOWHERE_REDIS})

    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "Redis is unavailable" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_list_too_long_for_memory_without_room_for_a_file_is_one_line(cli: Cli) -> None:
    stdin = "\n".join(f"a-rather-long-order-id-that-takes-memory-{number:09}" for number in range(60_000))

    # Its temporary file cannot be written because the size of files is limited.
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", sys.executable, "-m", "ingest", "reconcile", "-"],
        env=cli.env, input=stdin, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    # On a slow machine, it logs its progress before.
    errors = [line for line in done.stderr.splitlines() if "command_progress" not in line]
    assert (done.returncode, done.stdout, len(errors)) == (1, "", 1), done.stderr
    assert "SQLITE_TMPDIR" in errors[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_ctrl_c_ends_it_and_leaves_no_file(cli: Cli, tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "list")
    process = cli.start("reconcile", "--file", str(tmp_path / "list"), "--missing", str(tmp_path / "missing"))

    with (tmp_path / "list").open("w") as pipe:
        pipe.write("a\n")
        pipe.flush()
        eventually_sync(lambda: any("part" in file.name for file in tmp_path.iterdir()))
        process.send_signal(number)
        # It waits for more of the list.
        _, stderr = process.communicate(timeout=30)

    assert (process.returncode, stderr) == (128 + number, "stopped\n")
    assert [file.name for file in tmp_path.iterdir()] == ["list"]
