"""The programs and commands of the pages on enqueueing work as documented."""

import asyncio
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from http_api import running_api
from redis import Redis

from ingest.queue.layout.keys import Keys

DOCS = Path(__file__).parents[2] / "docs"
API = "https://orders.example"
CA_FILE = ', ca_file="/etc/ssl/our-ca.pem"'


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


_ALL_PROGRAMS = [
    program
    for page in ("enqueue/python.md", "enqueue/python-over-http.md", "reference/python-api.md")
    for program in blocks(page, "python")
]
PROGRAMS = [program for program in _ALL_PROGRAMS if API not in program]
OVER_HTTP = [program for program in _ALL_PROGRAMS if API in program]
COMMANDS = [
    line
    for block in blocks("enqueue/command-line-and-redis.md", "sh")
    for line in block.splitlines()
    if line.startswith("redis-cli")
]

OF_A_SOURCE = 6
PRINTED = [
    ("2 accepted\n", ["536365", "536366"], []),
    ("", ["536367"], []),
    ("(202, {})\n(202, {})\n(422, {})\n", ["536368"], []),
    ("Accepted(accepted=1, duplicates=0)\n" + 2 * "Accepted(accepted=0, duplicates=1)\n", ["536373"], []),
    (
        "durability fsync (INGEST_DURABILITY) is not possible with this Redis: it has no append-only file; set appendonly yes\n",
        [],
        [],
    ),
    ("", [], ["536369"]),
    ("1\n", [], []),
    ("Accepted(accepted=2, duplicates=0)\n", ["536366", "536367"], []),
    ("15.30\n", ["536370"], []),
]


def queued(redis: "Redis", stream: str) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in redis.xrange(stream)]


@pytest.mark.parametrize("number", range(len(PRINTED)))
def test_each_program_runs(redis_url: str, queue_name: str, number: int) -> None:
    assert len(PROGRAMS) == len(PRINTED)
    program = PROGRAMS[number].replace("redis://127.0.0.1:6379/0", redis_url).replace('"orders"', f'"{queue_name}"')

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)

    printed, main, express = PRINTED[number]
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 0)
    keys = Keys.of(queue_name)
    with Redis.from_url(redis_url) as redis:
        assert (queued(redis, keys.stream), queued(redis, keys.express)) == (main, express)
        of_a_source = queued(redis, Keys.of(f"{queue_name}/shop-de").stream)
        assert of_a_source == (["536365"] if number == OF_A_SOURCE else [])


@pytest.mark.parametrize(
    ("number", "printed", "entries"),
    [(0, "1000 accepted, 0 duplicates\n", 1_002), (1, "1 queued\n", 1), (2, "2\n", 2)],
)
async def test_each_program_over_http_runs(
    redis_url: str, dsn: str, queue_name: str, number: int, printed: str, entries: int
) -> None:
    assert len(OVER_HTTP) == 3
    async with running_api(redis_url, dsn, queue_name) as api:
        program = OVER_HTTP[number].replace(API, api.url).replace(CA_FILE, "")
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
        )

    assert (done.stdout, done.stderr) == (printed, "")
    with Redis.from_url(redis_url) as redis:
        assert len(queued(redis, Keys.of(queue_name).stream)) == entries


def test_each_command_for_other_languages_announces_an_order(redis_url: str, queue_name: str) -> None:
    keys = Keys.of(queue_name)
    with Redis.from_url(redis_url) as redis:
        assert len(COMMANDS) == 6
        for line in COMMANDS:
            program, *command = shlex.split(line.replace("{orders", f"{{{queue_name}"))
            assert program == "redis-cli"
            redis.execute_command(*command)

        assert (queued(redis, keys.stream), queued(redis, keys.express)) == (["536370"], ["536371"])
        assert queued(redis, Keys.of(f"{queue_name}/shop-de").stream) == ["536372"]
        for queue in (f"{queue_name}:1", f"{queue_name}/shop-de:1"):
            assert queued(redis, Keys.of(queue).stream) == ["536365"]


def test_the_commands_of_the_results_page_read_events(redis_url: str, queue_name: str) -> None:
    [block] = blocks("reference/results.md", "sh")
    create, read = [shlex.split(line.replace("{orders", f"{{{queue_name}"))[1:] for line in block.splitlines()]
    with Redis.from_url(redis_url) as redis:
        redis.xadd(Keys.of(queue_name).results, {"order_id": "536365", "outcome": "inserted"})

        redis.execute_command(*create)
        [[_, [[_, fields]]]] = redis.execute_command(*read)

    assert (fields[b"order_id"], fields[b"outcome"]) == (b"536365", b"inserted")
